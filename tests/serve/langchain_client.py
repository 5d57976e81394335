"""LangChain's ChatOpenAI against a running server: langchain_client.py URL. Prints TAP lines."""
import sys

try:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
except ImportError:
    print("ok 1 - langchain client # SKIP the package langchain-openai is not installed\n1..1")
    sys.exit(0)

done = bad = 0


def check(name, well):
    global done, bad
    done += 1
    bad += not well
    print(f"{'ok' if well else 'not ok'} {done} - {name}")


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


chat = ChatOpenAI(base_url=sys.argv[1] + "/v1", api_key="none", model="tiny", seed=1,
                  max_tokens=300)
hello = [HumanMessage("Hello")]
answer = chat.invoke(hello)
check("an answer", isinstance(answer.content, str) and answer.usage_metadata["output_tokens"] > 0)
text = "".join(part.content for part in chat.stream(hello))
check("a stream has the same text", text == answer.content)
forced = chat.bind_tools([add], tool_choice="any", parallel_tool_calls=False)
called = forced.invoke(hello)
check("a tool is called", called.tool_calls and called.tool_calls[0]["name"] == "add" and
      all(isinstance(called.tool_calls[0]["args"][k], int) for k in ("a", "b")))
parts = None
for part in forced.stream(hello):
    parts = part if parts is None else parts + part
check("a stream calls the same", parts.tool_calls[0]["args"] == called.tool_calls[0]["args"])
result = add.invoke(called.tool_calls[0])
more = chat.bind_tools([add]).invoke(hello + [called, ToolMessage(
    content=str(result.content), tool_call_id=called.tool_calls[0]["id"])])
check("what came of it goes back", more.response_metadata["finish_reason"] in
      ("stop", "length", "tool_calls"))
print(f"1..{done}")
sys.exit(bad > 0)
