%% Runs programs on Erlang/OTP's supervisor.
%%
%% Reads a program per line, {Number, {Flags, Specs, Actions}}, and prints a line {Number, Events} when it is done. Any
%% number of programs run side by side. `programs.py` says what a program may contain.
%%
%% Each program has a driver process, which is the parent of the root supervisor. Nothing here waits for time: after
%% each action the driver asks every supervisor of the tree for its children until no answer shows unfinished work
%% (see settle/1). This needs no luck, because nothing in a tree happens by itself: work that is left to do is either
%% the end of a process that its supervisor still lists, or a child that is `restarting`.
-module(otp_programs).
-export([main/0]).
-export([start_worker/3, start_supervisor/3]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-record(world, {driver, log, count, state}).
-record(worker, {world, spec, recorded = false}).

main() ->
    case io:get_line("") of
        eof ->
            halt(0);
        Line ->
            {ok, Tokens, _} = erl_scan:string(Line),
            {ok, {Number, Program}} = erl_parse:parse_term(Tokens),
            spawn(fun() -> io:format("~w.~n", [{Number, run_safely(Program)}]) end),
            main()
    end.

run_safely(Program) ->
    try run(Program)
    catch Class:Reason:Stack ->
        io:format(standard_error, "~p~n", [{Class, Reason, Stack}]),
        [harness_failed]
    end.

run({Flags, Specs, Actions}) ->
    process_flag(trap_exit, true),
    W = #world{driver = self(), log = ets:new(log, [ordered_set, public]), count = atomics:new(1, []),
               state = ets:new(state, [public])},
    case supervisor:start_link(?MODULE, {supervisor, W, root, none, Flags, Specs}) of
        {ok, Root} ->
            put_state(W, {serving, root}, Root),
            record(W, sup_started),
            drive(W, Root, Actions, [Id || #{id := Id} <- Specs]);
        {error, {shutdown, {failed_to_start_child, Id, _}}} ->
            record(W, {sup_start_error, {failed_to_start_child, Id}});
        {error, Reason} ->
            record(W, {sup_start_error, Reason})
    end,
    [Event || {_, Event} <- ets:tab2list(W#world.log)].

%% --- what is recorded, and what is known ---------------------------------------------------------------------------

%% Called by the process to which it happens, before it goes on. So the order of the log is that of cause and effect.
record(W, Event) ->
    ets:insert(W#world.log, {atomics:add_get(W#world.count, 1, 1), Event}).

put_state(W, Key, Value) -> ets:insert(W#world.state, {Key, Value}).

get_state(W, Key) ->
    case ets:lookup(W#world.state, Key) of
        [{_, Value}] -> Value;
        [] -> none
    end.

is_alive(Pid) -> is_pid(Pid) andalso is_process_alive(Pid).

%% --- children ------------------------------------------------------------------------------------------------------

child_spec(W, Home, #{type := supervisor} = Spec) ->
    child_spec(W, Home, Spec, start_supervisor);
child_spec(W, Home, Spec) ->
    child_spec(W, Home, Spec, start_worker).

child_spec(W, Home, Spec, Function) ->
    Known = maps:with([id, restart, shutdown, significant, type], Spec),
    Known#{start => {?MODULE, Function, [W, Home, Spec]}}.

start_worker(W, Home, #{id := Id} = Spec) ->
    gen_server:start_link(?MODULE, {worker, W, Home, Spec, next_start(W, Id, Spec)}, []).

start_supervisor(W, Home, #{id := Id} = Spec) ->
    Init = case next_start(W, Id, Spec) of
        ok -> {supervisor, W, Id, Home, maps:get(flags, Spec, #{}), maps:get(children, Spec, [])};
        Other -> {plan, Other}
    end,
    Result = supervisor:start_link(?MODULE, Init),
    case Result of
        {ok, Pid} -> put_state(W, {serving, Id}, Pid), record(W, {started, Id});
        ignore -> record(W, {start_ignored, Id});
        {error, _} -> record(W, {start_failed, Id})
    end,
    Result.

%% What this start does, by the list `init` of its spec.
next_start(W, Id, Spec) ->
    Number = ets:update_counter(W#world.state, {starts, Id}, 1, {{starts, Id}, 0}),
    Plan = maps:get(init, Spec, []),
    if Number =< length(Plan) -> lists:nth(Number, Plan); true -> ok end.

init({supervisor, W, Id, Home, Flags, Specs}) ->
    put_state(W, {supervisor, Id}, {self(), Home}),
    {ok, {Flags, [child_spec(W, Id, Spec) || Spec <- Specs]}};
init({plan, fail}) ->
    fail;
init({plan, ignore}) ->
    ignore;
init({worker, W, _, #{id := Id}, fail}) ->
    record(W, {start_failed, Id}),
    {stop, planned};
init({worker, W, _, #{id := Id}, ignore}) ->
    record(W, {start_ignored, Id}),
    ignore;
init({worker, W, Home, #{id := Id} = Spec, Plan}) ->
    process_flag(trap_exit, true),
    case Plan of
        wait -> record(W, {starting, Id}), pass_gate(W, Id, Home);
        ok -> ok
    end,
    put_state(W, {worker, Id}, {self(), Home}),
    record(W, {started, Id}),
    {ok, {Home, #worker{world = W, spec = Spec}}}.

handle_info({finish, Reason}, {Home, #worker{world = W, spec = #{id := Id}} = Worker}) ->
    record(W, {died, Id, Reason}),
    {stop, Reason, {Home, Worker#worker{recorded = true}}}.

handle_call(_, _, State) -> {noreply, State}.
handle_cast(_, State) -> {noreply, State}.

terminate(_, {_, #worker{recorded = true}}) ->
    ok;
terminate(Reason, {Home, #worker{world = W, spec = #{id := Id} = Spec}}) ->
    case maps:get(stop, Spec, ok) of
        ok -> ok;
        hang -> receive after infinity -> ok end;
        asked -> record(W, {asked, Id}), pass_gate(W, Id, Home)
    end,
    record(W, {stopped, Id, Reason}).

%% The driver can hold a child here, see step/2 for `during`.
pass_gate(W, Id, Home) ->
    case get_state(W, gate) of
        closed ->
            Ref = make_ref(),
            W#world.driver ! {at_gate, self(), Ref, Id, Home},
            receive {Ref, pass} -> ok end;
        _ ->
            ok
    end.

%% --- the driver ----------------------------------------------------------------------------------------------------

drive(W, Root, [stop_sup | _], Ids) ->
    stop(W, Root),
    living(W, Ids),
    record(W, {sup_alive, false});
drive(W, Root, [], Ids) ->
    case is_process_alive(Root) of
        true ->
            living(W, Ids),
            record(W, {sup_alive, true}),
            stop(W, Root);
        false ->
            receive {'EXIT', Root, Reason} -> record(W, {sup_exit, Reason}) end,
            living(W, Ids),
            record(W, {sup_alive, false})
    end;
drive(W, Root, [Action | Rest], Ids) ->
    step(W, Action),
    drive(W, Root, Rest, Ids).

stop(W, Root) ->
    record(W, sup_stop_requested),
    exit(Root, shutdown),
    receive {'EXIT', Root, Reason} -> record(W, {sup_exit, Reason}) end.

living(W, Ids) ->
    record(W, {alive, [Id || Id <- Ids, is_child_alive(W, Id)]}).

is_child_alive(W, Id) ->
    lists:any(fun(Kind) ->
                  case get_state(W, {Kind, Id}) of
                      {Pid, _} -> is_alive(Pid);
                      none -> false
                  end
              end, [worker, supervisor]).

step(_, {sleep, Ms}) ->
    timer:sleep(Ms);
step(W, look) ->
    record(W, {look, await(async(fun() -> look(W, root) end))});
step(W, {together, Actions}) ->
    Suspended = chains(W, Actions),
    [sys:suspend(Pid) || {_, _, Pid} <- Suspended],
    Begun = [queue(W, Action) || Action <- Actions],
    [resume(W, Id, Pid) || {_, Id, Pid} <- Suspended],
    conclude(W, Begun);
step(W, {during, Trigger, Actions}) ->
    put_state(W, gate, closed),
    Begun = [{_, {_, Monitor}}] = begin_and_settle(W, Trigger),
    Queued = receive
        {at_gate, Pid, Ref, Id, Home} ->
            More = [queue(W, Action) || Action <- Actions, touches(W, Action, Id, Home)],
            put_state(W, gate, open),
            Pid ! {Ref, pass},
            More;
        {'DOWN', Monitor, process, _, _} = Down ->
            put_state(W, gate, open),
            self() ! Down,
            []
    end,
    conclude(W, [Begun | Queued]);
step(W, Action) ->
    conclude(W, begin_action(W, Action)).

%% Begins an action, and returns the calls whose results are still to come: {{Verb, Id}, Helper}.
begin_action(W, {on, Sup, {Verb, Arg}}) ->
    [{{Verb, id(Verb, Arg)}, async(fun() -> call(W, Sup, Verb, Arg) end)}];
begin_action(W, {kill, Id}) ->
    die(W, Id, fun(Pid) -> record(W, {killed, Id}), exit(Pid, kill) end), [];
begin_action(W, {exit, Id, Reason}) ->
    die(W, Id, fun(Pid) -> Pid ! {finish, Reason} end), [];
begin_action(W, {Verb, Arg}) ->
    begin_action(W, {on, root, {Verb, Arg}}).

%% The same, with one helper that ends once all is quiet.
begin_and_settle(W, {on, Sup, {Verb, Arg}}) ->
    [{{Verb, id(Verb, Arg)}, async(fun() -> Result = call(W, Sup, Verb, Arg), settle(W), Result end)}];
begin_and_settle(W, {Verb, Arg}) when Verb =/= kill ->
    begin_and_settle(W, {on, root, {Verb, Arg}});
begin_and_settle(W, Death) ->
    [] = begin_action(W, Death),
    [{none, async(fun() -> settle(W) end)}].

die(W, Id, Fun) ->
    case get_state(W, {worker, Id}) of
        {Pid, Home} ->
            Monitor = monitor(process, Pid),
            case is_process_alive(Pid) of
                true ->
                    Fun(Pid),
                    receive {'DOWN', Monitor, process, Pid, _} -> {Pid, Home} end;
                false ->
                    demonitor(Monitor, [flush]),
                    record(W, {nobody, Id}),
                    none
            end;
        none ->
            record(W, {nobody, Id}),
            none
    end.

id(start_child, #{id := Id}) -> Id;
id(_, Id) -> Id.

call(W, Sup, Verb, Arg) ->
    Pid = get_state(W, {serving, Sup}),
    try change(Verb, Pid, Arg, W, Sup)
    catch exit:_ -> gone
    end.

change(start_child, Pid, Spec, W, Sup) -> started(supervisor:start_child(Pid, child_spec(W, Sup, Spec)));
change(restart_child, Pid, Id, _, _) -> started(supervisor:restart_child(Pid, Id));
change(stop_child, Pid, Id, _, _) -> supervisor:terminate_child(Pid, Id);
change(delete_child, Pid, Id, _, _) -> supervisor:delete_child(Pid, Id).

started({ok, _}) -> ok;
started({error, {already_started, _}}) -> already_started;
started({error, Reason}) when is_atom(Reason), Reason =/= planned -> {error, Reason};
started({error, {bad_combination, _} = Reason}) -> {error, Reason};
started({error, _}) -> {error, start_failed}.

%% Waits until all is quiet, and records the results in the order of the calls.
conclude(W, Begun) ->
    Results = [{Call, await(Helper)} || {Call, Helper} <- lists:flatten(Begun)],
    await(async(fun() -> settle(W) end)),
    [record(W, {call, Verb, Id, Result}) || {{Verb, Id}, Result} <- Results].

%% --- actions at the same time --------------------------------------------------------------------------------------

%% Begins an action on a supervisor that is busy or suspended, and waits until it is in its queue.
queue(W, {kill, _} = Death) -> queue_death(W, Death);
queue(W, {exit, _, _} = Death) -> queue_death(W, Death);
queue(W, {on, Sup, {Verb, Arg}}) ->
    case get_state(W, {serving, Sup}) of
        Pid when is_pid(Pid) ->
            Before = calls_waiting(Pid),
            Helper = async(fun() -> call(W, Sup, Verb, Arg) end),
            spin(fun() -> not is_process_alive(Pid) orelse calls_waiting(Pid) > Before end),
            [{{Verb, id(Verb, Arg)}, Helper}];
        none ->
            begin_action(W, {on, Sup, {Verb, Arg}})
    end;
queue(W, {Verb, Arg}) ->
    queue(W, {on, root, {Verb, Arg}}).

queue_death(W, Death) ->
    Id = element(2, Death),
    Child = get_state(W, {worker, Id}),
    Alive = is_child_alive(W, Id),
    [] = begin_action(W, Death),
    case Child of
        {Pid, Home} when Alive -> wait_for_exit(W, Home, Pid);
        _ -> ok
    end,
    [].

wait_for_exit(W, Home, Pid) ->
    {Sup, _} = get_state(W, {supervisor, Home}),
    spin(fun() -> is_waiting(Sup, fun({'EXIT', From, _}) -> From =:= Pid; (_) -> false end) end).

is_waiting(Pid, Fun) ->
    case process_info(Pid, messages) of
        {messages, Messages} -> lists:any(Fun, Messages);
        undefined -> true
    end.

calls_waiting(Pid) ->
    case process_info(Pid, messages) of
        {messages, Messages} -> length([call || Message <- Messages, element(1, Message) =:= '$gen_call']);
        undefined -> 0
    end.

%% The supervisors that several actions are about, and all above them: {-Depth, Id, Pid}, the deepest first.
chains(W, Actions) ->
    Ids = lists:usort(lists:append([chain(W, home(W, Action)) || Action <- Actions])),
    lists:sort([{-length(chain(W, Id)), Id, Pid} || Id <- Ids, {Pid, _} <- [get_state(W, {supervisor, Id})]]).

chain(_, none) -> [];
chain(W, Id) ->
    case get_state(W, {supervisor, Id}) of
        {Pid, Home} ->
            case is_alive(Pid) of
                true -> [Id | chain(W, Home)];
                false -> []
            end;
        none ->
            []
    end.

home(W, {kill, Id}) -> home(W, {worker, Id});
home(W, {exit, Id, _}) -> home(W, {worker, Id});
home(_, {on, Sup, _}) -> Sup;
home(W, {worker, Id}) ->
    case get_state(W, {worker, Id}) of
        {Pid, Home} -> case is_alive(Pid) of true -> Home; false -> none end;
        none -> none
    end;
home(_, {_, _}) -> root.

%% Lets one supervisor go on, and waits until it and those below it have done everything, or its parent knows its end.
resume(W, Id, Pid) ->
    sys:resume(Pid),
    await(async(fun() -> settle(W, Pid) end)),
    {Pid, Home} = get_state(W, {supervisor, Id}),
    case is_process_alive(Pid) of
        false when Home =/= none -> wait_for_exit(W, Home, Pid);
        _ -> ok
    end.

%% Actions during another one are those on the same supervisor, and not on the child that is held. While that
%% supervisor itself is starting there are none: once it has started, it and its own supervisor go on side by side.
touches(W, Action, Held, Home) ->
    {Sup, _} = get_state(W, {supervisor, Home}),
    (get_state(W, {serving, Home}) =:= Sup andalso is_about(W, Action, Held, Home)) orelse refuse(W, Action).

is_about(_, {on, Sup, _}, _, Home) -> Sup =:= Home;
is_about(_, {Verb, _}, _, Home) when Verb =/= kill -> Home =:= root;
is_about(W, Death, Held, Home) -> element(2, Death) =/= Held andalso home(W, Death) =:= Home.

refuse(W, Action) -> record(W, {refused, Action}), false.

%% --- waiting -------------------------------------------------------------------------------------------------------

%% Runs Fun in a process of its own, because the driver has to answer children at the gate.
async(Fun) -> spawn_monitor(fun() -> exit({done, Fun()}) end).

await({_, Ref}) ->
    receive {'DOWN', Ref, process, _, Reason} -> {done, Result} = Reason, Result end.

spin(Fun) ->
    case Fun() of
        true -> ok;
        false -> erlang:yield(), spin(Fun)
    end.

settle(W) ->
    {Root, none} = get_state(W, {supervisor, root}),
    settle(W, Root).

%% Waits until a supervisor and those below it have nothing left to do, or it has ended.
settle(_, Sup) -> spin(fun() -> not is_process_alive(Sup) orelse is_quiet(Sup) end).

is_quiet(Sup) ->
    try supervisor:which_children(Sup) of
        Children -> lists:all(fun is_child_quiet/1, Children)
    catch
        exit:_ -> false
    end.

is_child_quiet({_, restarting, _, _}) -> false;
is_child_quiet({_, undefined, _, _}) -> true;
is_child_quiet({_, Pid, worker, _}) -> is_process_alive(Pid);
is_child_quiet({_, Pid, supervisor, _}) -> is_process_alive(Pid) andalso is_quiet(Pid).

%% Every supervisor that can be reached, with its children and their counts.
look(W, Id) ->
    {Sup, _} = get_state(W, {supervisor, Id}),
    case is_process_alive(Sup) of
        true ->
            Children = lists:reverse(supervisor:which_children(Sup)),
            Rows = [{Child, state_of(Pid)} || {Child, Pid, _, _} <- Children],
            Counts = [Count || {_, Count} <- supervisor:count_children(Sup)],
            Below = [look(W, Child) || {Child, Pid, supervisor, _} <- Children, is_pid(Pid)],
            [{Id, Rows, Counts} | lists:append(Below)];
        false ->
            []
    end.

state_of(undefined) -> down;
state_of(restarting) -> restarting;
state_of(_) -> up.
