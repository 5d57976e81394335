"""The anthropic package against a running server: anthropic_client.py URL. Prints TAP lines."""
import sys

try:
    import anthropic
except ImportError:
    print("ok 1 - anthropic client # SKIP the package anthropic is not installed\n1..1")
    sys.exit(0)

done = bad = 0


def check(name, well, found=""):
    global done, bad
    done += 1
    bad += not well
    print(f"{'ok' if well else 'not ok'} {done} - {name}{'' if well else f' # {found}'}")


client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
model = sys.argv[2] if len(sys.argv) > 2 else "tiny"
ask = dict(model=model, max_tokens=12, extra_body={"temperature": 0}, system="Be brief.",
           messages=[{"role": "user", "content": "Hello"}])
whole = client.messages.create(**ask)
check("a message", whole.role == "assistant" and whole.type == "message" and
      whole.content[0].type == "text", whole)
check("why it ended", whole.stop_reason in ("max_tokens", "end_turn") and
      whole.usage.output_tokens <= 12, whole)
with client.messages.stream(**ask) as stream:
    text = "".join(stream.text_stream)
    last = stream.get_final_message()
check("a stream has the same text", text == whole.content[0].text == last.content[0].text, text)
check("and usage", last.usage.output_tokens == whole.usage.output_tokens and
      last.stop_reason == whole.stop_reason, last)
events = [e.type for e in client.messages.create(**ask, stream=True)]
check("its events", events[:2] == ["message_start", "content_block_start"] and
      events[-3:] == ["content_block_stop", "message_delta", "message_stop"], events)
blocks = client.messages.create(**{**ask, "messages": [
    {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]})
check("parts are a text", blocks.content[0].text == whole.content[0].text, blocks)
talk = client.messages.create(**{**ask, "messages": ask["messages"] + [
    {"role": "assistant", "content": whole.content[0].text.replace("\0", "")},
    {"role": "user", "content": "More"}]})
check("a second turn", talk.usage.input_tokens + (talk.usage.cache_read_input_tokens or 0) >
      whole.usage.input_tokens, talk)
for name, more in (("tools", {"tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
                   ("thinking", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
                   ("messages", {"messages": [{"role": "user", "content": [
                       {"type": "image", "source": {"type": "url", "url": "x"}}]}]})):
    try:
        client.messages.create(**{**ask, **more})
        check(name + " is refused", False)
    except anthropic.BadRequestError as e:
        check(name + " is refused by its name", name in str(e), e)
print(f"1..{done}")
sys.exit(bad > 0)
