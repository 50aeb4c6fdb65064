# ruff: noqa: N803, N815, PT028 - the names are those of the suite
"""A server with all that the suite's *server* scenarios name: ``python -m tests.conformance.server stdio``, or a port.

The names and texts are those that the suite looks for. What it does with them is as short as possible.
"""

from __future__ import annotations

import base64
import json
import sys
from functools import partial
from typing import Annotated, Any, Final

import anyio
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp.server.mcpserver.prompts.base import Prompt, UserMessage
from mcp.types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel, Field

IMAGE: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
AUDIO: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
KEY: Final = b"a key of 32 bytes or more for a fixture"
NAME: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OK: Final = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}

server = MCPServer("conformance", version="1", request_state_security=RequestStateSecurity(keys=[KEY]))
tool = partial(server.tool, description="A fixture of the suite.")
prompt = partial(server.prompt, description="A fixture of the suite.")
made = 0


def text(content: str) -> TextContent:
    return TextContent(type="text", text=content)


def resource(uri: str, content: str, kind: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=kind, text=content))


def image() -> ImageContent:
    return ImageContent(type="image", data=IMAGE, mime_type="image/png")


def elicit(message: str = "What is your name?", schema: dict[str, Any] = NAME) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(question: str) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=text(question))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=100))


def answers(ctx: Context) -> dict[str, Any]:
    return dict(ctx.input_responses or {})


# --- Tools ------------------------------------------------------------------------------------------------------------


@tool()
def test_simple_text() -> str:
    return "This is a simple text response for testing."


@tool()
def test_image_content() -> list[ImageContent]:
    return [image()]


@tool()
def test_audio_content() -> list[AudioContent]:
    return [AudioContent(type="audio", data=AUDIO, mime_type="audio/wav")]


@tool()
def test_embedded_resource() -> list[EmbeddedResource]:
    return [resource("test://embedded-resource", "This is an embedded resource content.")]


@tool()
def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    mixed = resource("test://mixed-content-resource", '{"test": "data", "value": 123}', "application/json")
    return [text("Multiple content types test:"), image(), mixed]


@tool()
async def test_tool_with_logging(ctx: Context) -> str:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(said)
        await anyio.sleep(0.05)
    return "Tool with logging executed successfully"


@tool()
async def test_logging_tool(ctx: Context) -> str:
    await ctx.info("Only for those who want it")
    return "done"


@tool()
async def test_tool_with_progress(ctx: Context) -> str:
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100, f"Completed step {done} of 100")
        await anyio.sleep(0.05)
    return "done"


@tool()
async def test_sampling(prompt: str, ctx: Context) -> str:
    message = SamplingMessage(role="user", content=text(prompt))
    found = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
    return f"LLM response: {getattr(found.content, 'text', '')}"


class Answer(BaseModel):
    response: str = Field(description="User's response")


class Defaults(BaseModel):
    name: str = Field(default="John Doe", description="User name")
    age: int = Field(default=30, description="User age")
    score: float = Field(default=95.5, description="User score")
    status: str = Field(default="active", json_schema_extra={"enum": ["active", "inactive", "pending"]})
    verified: bool = Field(default=True, description="Verification status")


LEVELS: Final[Any] = [{"const": each.lower(), "title": f"{each} Priority"} for each in ("Low", "Medium", "High")]
TOPICS: Final[Any] = [{"const": "feature", "title": "New Feature"}, {"const": "bug", "title": "Bug Fix"}]
SIZES: Final[Any] = {"enum": ["small", "medium", "large"], "enumNames": ["Small Size", "Medium Size", "Large Size"]}
RIGHTS: Final[Any] = {"items": {"type": "string", "enum": ["read", "write", "execute"]}}


class Choices(BaseModel):
    untitledSingle: str = Field(json_schema_extra={"enum": ["active", "inactive", "pending"]})
    titledSingle: str = Field(json_schema_extra={"oneOf": LEVELS})
    untitledMulti: list[str] = Field(json_schema_extra=RIGHTS)
    titledMulti: list[str] = Field(json_schema_extra={"items": {"anyOf": TOPICS}})
    legacyEnum: str = Field(json_schema_extra=SIZES)


async def asked(ctx: Context, message: str, model: type[BaseModel]) -> str:
    found = await ctx.elicit(message=message, schema=model)
    content = found.data.model_dump_json() if found.action == "accept" else "{}"
    return f"action={found.action}, content={content}"


@tool()
async def test_elicitation(message: str, ctx: Context) -> str:
    return f"User response: {await asked(ctx, message, Answer)}"


@tool()
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    return f"Elicitation completed: {await asked(ctx, 'Please provide user information', Defaults)}"


@tool()
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    return f"Elicitation completed: {await asked(ctx, 'Please select values', Choices)}"


@tool()
def test_error_handling() -> str:
    raise RuntimeError("This tool intentionally returns an error for testing")


@tool()
def test_x_mcp_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "-") -> str:
    return f"region={region}"


@tool()
def test_missing_capability(ctx: Context) -> str:
    capabilities = ctx.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs the capability sampling", needed)
    return "fine"


# --- Questions instead of results -------------------------------------------------------------------------------------


@tool()
def test_input_required_result_elicitation(ctx: Context) -> str | InputRequiredResult:
    found = answers(ctx).get("user_name")
    if found is None:
        return InputRequiredResult(input_requests={"user_name": elicit()})
    return f"Hello, {(found.content or {}).get('name', 'stranger')}!"


@tool()
def test_streaming_elicitation(ctx: Context) -> str | InputRequiredResult:
    return test_input_required_result_elicitation(ctx)


@tool()
def test_input_required_result_sampling(ctx: Context) -> str | InputRequiredResult:
    found = answers(ctx).get("capital_question")
    if found is None:
        return InputRequiredResult(input_requests={"capital_question": sample("What is the capital of France?")})
    return f"Model said: {found.content.text}"


@tool()
def test_input_required_result_list_roots(ctx: Context) -> str | InputRequiredResult:
    found = answers(ctx).get("client_roots")
    if found is None:
        return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})
    return f"Client exposed {len(found.roots)} root(s)."


@tool()
def test_input_required_result_request_state(ctx: Context) -> str | InputRequiredResult:
    if "confirm" in answers(ctx) and ctx.request_state == "nonce":
        return "state-ok: confirmation received"
    return InputRequiredResult(input_requests={"confirm": elicit("Please confirm", OK)}, request_state="nonce")


@tool()
def test_input_required_result_multiple_inputs(ctx: Context) -> str | InputRequiredResult:
    wanted: dict[str, Any] = {
        "user_name": elicit(),
        "greeting": sample("Generate a greeting"),
        "client_roots": ListRootsRequest(),
    }
    if wanted.keys() <= answers(ctx).keys():
        return "All inputs received."
    return InputRequiredResult(input_requests=wanted, request_state="several")


@tool()
def test_input_required_result_multi_round(ctx: Context) -> str | InputRequiredResult:
    state = json.loads(ctx.request_state) if ctx.request_state else {"round": 0}
    found = answers(ctx).get(f"step{state['round']}")
    if state["round"] == 1 and found is not None:
        color = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
        following = json.dumps({"round": 2, "name": (found.content or {}).get("name")})
        second: Any = elicit("Step 2: What is your favorite color?", color)
        return InputRequiredResult(input_requests={"step2": second}, request_state=following)
    if state["round"] == 2 and found is not None:
        return f"{state['name']} likes {(found.content or {}).get('color')}."
    first: Any = elicit("Step 1: What is your name?")
    return InputRequiredResult(input_requests={"step1": first}, request_state=json.dumps({"round": 1}))


@tool()
def test_input_required_result_tampered_state(ctx: Context) -> str | InputRequiredResult:
    if ctx.request_state is None:
        return InputRequiredResult(input_requests={"confirm": elicit("Please confirm", OK)}, request_state="round-1")
    return f"state-ok: {ctx.request_state}"


@tool()
def test_input_required_result_capabilities(ctx: Context) -> InputRequiredResult:
    given = ctx.client_capabilities
    asks: dict[str, Any] = {}
    if given is None or given.sampling is not None:
        asks["sample"] = sample("Say hello")
    if given is None or given.elicitation is not None:
        asks["ask"] = elicit()
    return InputRequiredResult(input_requests=asks, request_state="gated")


# --- Changes of lists -------------------------------------------------------------------------------------------------


@tool()
async def test_trigger_tool_change(ctx: Context) -> str:
    global made
    made += 1
    server.add_tool(lambda: "dynamic", name=f"test_dynamic_tool_{made}", description="Dynamic.")
    await ctx.notify_tools_changed()
    return "tool list changed"


@tool()
async def test_trigger_prompt_change(ctx: Context) -> str:
    global made
    made += 1
    server.add_prompt(Prompt.from_function(lambda: "dynamic", name=f"test_dynamic_prompt_{made}", description="-"))
    await ctx.notify_prompts_changed()
    return "prompt list changed"


# --- Resources, prompts and the rest ----------------------------------------------------------------------------------


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    return base64.b64decode(IMAGE)


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@server.resource("test://watched-resource")
def watched() -> str:
    return "Watched resource content"


@prompt()
def test_simple_prompt() -> list[UserMessage]:
    return [UserMessage(text("This is a simple prompt for testing."))]


@prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
    return [UserMessage(text(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]


@prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
    embedded = resource(resourceUri, "Embedded resource content for testing.")
    return [UserMessage(embedded), UserMessage(text("Please process the embedded resource above."))]


@prompt()
def test_prompt_with_image() -> list[UserMessage]:
    return [UserMessage(image()), UserMessage(text("Please analyze the image above."))]


@prompt()
def test_input_required_result_prompt(ctx: Context) -> list[UserMessage] | InputRequiredResult:
    found = answers(ctx).get("user_context")
    if found is None:
        schema = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
        return InputRequiredResult(input_requests={"user_context": elicit("What context?", schema)})
    return [UserMessage(text(f"Use the following context: {(found.content or {}).get('context')}"))]


@server.completion()  # type: ignore[no-untyped-call,untyped-decorator]  # the SDK's has no types
async def complete(ref: Any, argument: Any, context: Any) -> Completion:
    return Completion(values=[], total=0, has_more=False)


async def nothing(ctx: Any, params: Any) -> EmptyResult:
    return EmptyResult()


for method, params in (
    ("logging/setLevel", SetLevelRequestParams),
    ("resources/subscribe", SubscribeRequestParams),
    ("resources/unsubscribe", UnsubscribeRequestParams),
):
    server._lowlevel_server.add_request_handler(method, params, nothing)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        server.run(transport="streamable-http", port=int(sys.argv[1]))
