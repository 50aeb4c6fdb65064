%% The programs as processes of Erlang. The words are names, each with a size and a number of times; for each, the result
%% and the milliseconds of the processor are printed.
-module(twelve).
-export([main/1]).

main(Words) -> spawn(fun() -> measure(Words) end).

measure([]) -> halt();
measure([Name, Size, Times | Words]) ->
    Program = fun() -> run(Name, list_to_integer(Size)) end,
    Program(),
    {Before, _} = statistics(runtime),
    [Result | _] = repeat(list_to_integer(Times), Program),
    {After, _} = statistics(runtime),
    io:format("[\"~s\", ~b, ~b]~n", [Name, Result, After - Before]),
    measure(Words).

%% Ask a process and wait; it answers the reference.
ask(To, Words) ->
    Ref = make_ref(),
    To ! {self(), Ref, Words},
    receive {Ref, Answer} -> Answer end.

answer({Pid, Ref}, Value) -> Pid ! {Ref, Value}.

%% Run functions in processes, and return their results.
gather(Clients) ->
    Me = self(),
    Pids = [spawn_link(fun() -> Me ! {self(), Client()} end) || Client <- Clients],
    [receive {Pid, Result} -> Result end || Pid <- Pids].

with(Pids, Body) ->
    Result = Body(Pids),
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- Pids],
    Result.

repeat(Number, Body) -> [Body() || _ <- lists:seq(1, Number)].

run("ping pong", Size) ->
    with([spawn_link(fun echo/0)], fun([Echo]) -> lists:sum(repeat(Size, fun() -> ask(Echo, 1) end)) end);
run("counting", Size) ->
    with([spawn_link(fun() -> counter(0) end)], fun([Counter]) ->
        repeat(Size, fun() -> Counter ! one end),
        ask(Counter, total)
    end);
run("many counters", Size) ->
    with(repeat(60, fun() -> spawn_link(fun() -> counter(0) end) end), fun(Counters) ->
        repeat(Size div 60, fun() -> [Counter ! one || Counter <- Counters] end),
        lists:sum([ask(Counter, total) || Counter <- Counters])
    end);
run("short lives", Size) ->
    Me = self(),
    repeat(Size, fun() -> spawn_link(fun() -> receive one -> Me ! seen end end) ! one end),
    length(repeat(Size, fun() -> receive seen -> ok end end));
run("ring", Size) ->
    Me = self(),
    with(repeat(100, fun() -> spawn_link(fun() -> receive {next, Next} -> pass_on(Next, Me) end end) end), fun(Nodes) ->
        [Node ! {next, Next} || {Node, Next} <- lists:zip(Nodes, tl(Nodes) ++ [hd(Nodes)])],
        hd(Nodes) ! Size,
        receive over -> Size end
    end);
run("meetings", Size) ->
    with([spawn_link(fun() -> mall(Size, none) end)], fun([Mall]) ->
        lists:sum(gather([fun() -> creature(Mall, Color rem 3, 0) end || Color <- lists:seq(0, 99)]))
    end);
run("crosstalk", Size) ->
    Me = self(),
    with(repeat(60, fun() -> spawn_link(fun() -> receive {to, To} -> talk(To, Size div 60, Me) end end) end), fun(Talkers) ->
        [Talker ! {to, list_to_tuple(Talkers)} || Talker <- Talkers],
        repeat(60, fun() -> receive over -> ok end end),
        Size div 60 * 60
    end);
run("dictionary", Size) ->
    with([spawn_link(fun() -> dictionary(#{}) end)], fun([Dictionary]) ->
        Read = fun() ->
            length(repeat(Size div 20, fun() -> ask(Dictionary, {rand:uniform(512), rand:uniform(10) == 1}) end))
        end,
        lists:sum(gather(lists:duplicate(20, Read)))
    end);
run("buffer", Size) ->
    with([spawn_link(fun() -> buffer(0, queue:new()) end)], fun([Buffer]) ->
        Produce = fun() -> repeat(Size div 40, fun() -> ask(Buffer, {put, 1}) end), 0 end,
        Consume = fun() -> lists:sum(repeat(Size div 40, fun() -> ask(Buffer, take) end)) end,
        lists:sum(gather(lists:duplicate(40, Produce) ++ lists:duplicate(40, Consume)))
    end);
run("bank", Size) ->
    with(repeat(100, fun() -> spawn_link(fun() -> account(0) end) end), fun(Accounts) ->
        All = list_to_tuple(Accounts),
        Move = fun() ->
            repeat(Size div 10, fun() ->
                ask(element(rand:uniform(50), All), {to, element(50 + rand:uniform(50), All)})
            end)
        end,
        gather(lists:duplicate(10, Move)),
        lists:sum([ask(Account, total) || Account <- lists:nthtail(50, Accounts)])
    end);
run("radix sort", Size) ->
    Values = [rand:uniform(256) - 1 || _ <- lists:seq(1, Size)],
    Stage = fun(Bit, To) -> spawn_link(fun() -> sort(Bit, To, []) end) end,
    First = lists:foldl(Stage, self(), lists:seq(7, 0, -1)),
    [First ! Value || Value <- Values ++ [over]],
    Found = collect([]),
    case lists:sort(Values) of Found -> length(Found); _ -> 0 end;
run("queens", Size) ->
    Me = self(),
    with(repeat(20, fun() -> spawn_link(fun() -> worker(Me, Size) end) end), fun(Workers) ->
        hd(Workers) ! [],
        share(list_to_tuple(Workers), 1, 0, 0)
    end).

echo() -> receive {Pid, Ref, Number} -> answer({Pid, Ref}, Number), echo() end.

counter(Total) ->
    receive
        one -> counter(Total + 1);
        {Pid, Ref, total} -> answer({Pid, Ref}, Total), counter(Total)
    end.

pass_on(Next, Main) ->
    receive
        0 -> Main ! over;
        Left -> Next ! Left - 1, pass_on(Next, Main)
    end.

mall(0, _) -> receive {Pid, Ref, _} -> answer({Pid, Ref}, -1), mall(0, none) end;
mall(Left, none) -> receive {Pid, Ref, Color} -> mall(Left, {{Pid, Ref}, Color}) end;
mall(Left, {First, Other}) ->
    receive {Pid, Ref, Color} -> answer(First, Color), answer({Pid, Ref}, Other), mall(Left - 1, none) end.

creature(Mall, Color, Met) ->
    case ask(Mall, Color) of
        -1 -> Met;
        Color -> creature(Mall, Color, Met + 1);
        Other -> creature(Mall, 3 - Color - Other, Met + 1)
    end.

talk(To, 0, Main) -> Main ! over, reply(To);
talk(To, Left, Main) -> element(rand:uniform(60), To) ! {question, self()}, wait_for_answer(To, Left, Main).

wait_for_answer(To, Left, Main) ->
    receive
        {question, Sender} -> Sender ! reply, wait_for_answer(To, Left, Main);
        reply -> talk(To, Left - 1, Main)
    end.

reply(To) -> receive {question, Sender} -> Sender ! reply, reply(To) end.

dictionary(Values) ->
    receive
        {Pid, Ref, {Key, true}} -> answer({Pid, Ref}, ok), dictionary(Values#{Key => Key});
        {Pid, Ref, {Key, false}} -> answer({Pid, Ref}, maps:get(Key, Values, 0)), dictionary(Values)
    end.

%% A guard lets messages wait for which there is no room, or no item.
buffer(Number, Items) ->
    receive
        {Pid, Ref, {put, Item}} when Number < 50 -> answer({Pid, Ref}, ok), buffer(Number + 1, queue:in(Item, Items));
        {Pid, Ref, take} when Number > 0 ->
            {{value, Item}, Rest} = queue:out(Items),
            answer({Pid, Ref}, Item),
            buffer(Number - 1, Rest)
    end.

account(Balance) ->
    receive
        {Pid, Ref, total} -> answer({Pid, Ref}, Balance), account(Balance);
        {Pid, Ref, credit} -> answer({Pid, Ref}, ok), account(Balance + 1);
        {Pid, Ref, {to, Other}} -> ask(Other, credit), answer({Pid, Ref}, ok), account(Balance - 1)
    end.

sort(Bit, To, Ones) ->
    receive
        over -> [To ! One || One <- lists:reverse([over | Ones])];
        Value when (Value bsr Bit) band 1 =:= 1 -> sort(Bit, To, [Value | Ones]);
        Value -> To ! Value, sort(Bit, To, Ones)
    end.

collect(Found) ->
    receive
        over -> lists:reverse(Found);
        Value when is_integer(Value) -> collect([Value | Found])
    end.

worker(Master, Side) ->
    receive
        Board ->
            Boards = [[Column | Board] || Column <- lists:seq(1, Side), fits(Column, Board, 1)],
            Master ! case length(Board) + 1 of Side -> {[], length(Boards)}; _ -> {Boards, 0} end,
            worker(Master, Side)
    end.

fits(_, [], _) -> true;
fits(Column, [Other | Above], Rows) ->
    Column =/= Other andalso abs(Column - Other) =/= Rows andalso fits(Column, Above, Rows + 1).

share(_, 0, _, Full) -> Full;
share(Workers, Open, Turn, Full) ->
    receive
        {Boards, Found} ->
            Next = lists:foldl(fun(Board, At) -> element(At rem 20 + 1, Workers) ! Board, At + 1 end, Turn, Boards),
            share(Workers, Open - 1 + length(Boards), Next, Full + Found)
    end.
