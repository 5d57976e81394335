"""The openai package against a running server: openai_client.py URL. Prints TAP lines."""
import asyncio
import json
import sys

try:
    import openai
except ImportError:
    print("ok 1 - openai client # SKIP the package openai is not installed\n1..1")
    sys.exit(0)

done = bad = 0


def check(name, well):
    global done, bad
    done += 1
    bad += not well
    print(f"{'ok' if well else 'not ok'} {done} - {name}")


client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
model = client.models.list().data[0].id
check("models", client.models.retrieve(model).id == model)

whole = client.completions.create(model=model, prompt="Once", max_tokens=20, seed=1)
again = client.completions.create(model=model, prompt="Once", max_tokens=20, seed=1)
check("the same seed, the same text", whole.choices[0].text == again.choices[0].text)
check("usage", whole.usage.total_tokens == whole.usage.prompt_tokens + 20)
parts = client.completions.create(model=model, prompt="Once", max_tokens=20, seed=1, stream=True)
text = "".join(c.choices[0].text for c in parts if c.choices)
check("a stream has the same text", text == whole.choices[0].text)

messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
chat = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=12,
                                      seed=2, logprobs=True, top_logprobs=3)
check("chat", chat.choices[0].message.role == "assistant")
check("log-probabilities", len(chat.choices[0].logprobs.content) > 0 and
      len(chat.choices[0].logprobs.content[0].top_logprobs) == 3)
stream = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=12,
                                        seed=2, stream=True,
                                        stream_options={"include_usage": True})
text, usage = "", None
for chunk in stream:
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
    usage = chunk.usage or usage
check("a stream of a chat has the same text", text == chat.choices[0].message.content)
check("and its usage", usage.prompt_tokens == chat.usage.prompt_tokens)

vectors = client.embeddings.create(model=model, input=["one", "two"])  # base64 by default
plain = client.embeddings.create(model=model, input=["one"], encoding_format="float")
check("embeddings", len(vectors.data) == 2 and
      max(abs(a - b) for a, b in zip(vectors.data[0].embedding, plain.data[0].embedding)) < 1e-6)

kept = client.completions.create(model=model, prompt="Remember me.", max_tokens=4, seed=1,
                                 extra_body={"dra_save_state": "client"})
more = client.completions.create(model=model, prompt=" And?", max_tokens=4, seed=1,
                                 extra_body={"dra_state": "client"})
check("states", kept.usage.prompt_tokens > more.usage.prompt_tokens)
# Several turns: messages go back as they came.
talk = messages + [chat.choices[0].message, {"role": "user", "content": "And now?"}]
turn = client.chat.completions.create(model=model, messages=talk, max_completion_tokens=5, seed=2)
check("a message goes back as it came", turn.usage.prompt_tokens > chat.usage.prompt_tokens)

# Tools, whose arguments are those of the schema, and what comes of them.
tools = [{"type": "function", "function": {
    "name": "weather", "description": "The weather of a city.", "strict": True,
    "parameters": {"type": "object", "required": ["city", "days"], "additionalProperties": False,
                   "properties": {"city": {"enum": ["Rome", "Oslo"]},
                                  "days": {"type": "integer"}}}}}]
asked = dict(model=model, messages=messages, tools=tools, tool_choice="required", seed=4,
             parallel_tool_calls=False, max_completion_tokens=200)
called = client.chat.completions.create(**asked).choices[0]
call = called.message.tool_calls[0]
arguments = json.loads(call.function.arguments)
check("a tool is called", called.finish_reason == "tool_calls" and call.function.name == "weather")
check("with arguments of its schema", arguments["city"] in ("Rome", "Oslo") and
      isinstance(arguments["days"], int))
parts, finish = [], None
for chunk in client.chat.completions.create(**asked, stream=True):
    for choice in chunk.choices:
        parts += choice.delta.tool_calls or []
        finish = choice.finish_reason or finish
check("a stream calls the same", finish == "tool_calls" and
      [(p.function.name, p.function.arguments) for p in parts] ==
      [(call.function.name, call.function.arguments)])
talk = messages + [called.message,
                   {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
turn = client.chat.completions.create(model=model, messages=talk, tools=tools,
                                      max_completion_tokens=3)
check("what came of it goes back", turn.choices[0].message.role == "assistant")

schema = {"type": "object", "required": ["mood"],
          "properties": {"mood": {"enum": ["good", "bad"]}}, "additionalProperties": False}
shaped = client.chat.completions.create(
    model=model, messages=messages, max_completion_tokens=60, seed=3,
    response_format={"type": "json_schema", "json_schema": {"name": "m", "schema": schema}})
check("an answer of a schema", json.loads(shaped.choices[0].message.content)["mood"]
      in ("good", "bad"))


ask = {"model": model, "instructions": "Be brief.", "input": "Hello", "max_output_tokens": 12,
       "temperature": 0}
response = client.responses.create(**ask)
same = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=12,
                                      temperature=0)
check("a response is that of a chat", response.object == "response" and
      response.output_text == same.choices[0].message.content and
      response.usage.input_tokens == same.usage.prompt_tokens)
check("and says why it ended", response.status == "incomplete" and
      response.incomplete_details.reason == "max_output_tokens" or response.status == "completed")
told, kinds, numbers = "", [], []
for event in client.responses.create(**ask, stream=True):
    kinds.append(event.type)
    numbers.append(event.sequence_number)
    told += event.delta if event.type == "response.output_text.delta" else ""
check("a stream of it has the same text", told == response.output_text == event.response.output_text)
check("its events are in order", kinds[:2] == ["response.created", "response.in_progress"] and
      kinds[-2:] == ["response.output_item.done", "response." + response.status] and
      numbers == list(range(len(kinds))))
first = {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
again = client.responses.create(**{**ask, "input": [first]})
check("parts are a text", again.output_text == response.output_text)
item = response.output[0].model_dump()
item["content"][0]["text"] = item["content"][0]["text"].replace("\0", "")
talk = client.responses.create(**{**ask, "input": [first, item, {"role": "user",
                                                                  "content": "More"}]})
check("an answer goes back as it came", talk.usage.input_tokens > response.usage.input_tokens)
mood = client.responses.create(**{**ask, "max_output_tokens": 60, "text": {"format": {
    "type": "json_schema", "name": "m", "schema": schema}}})
check("a response of a schema", json.loads(mood.output_text)["mood"] in ("good", "bad"))
with client.responses.stream(**{**ask, "max_output_tokens": 60, "text": {"format": {
        "type": "json_schema", "name": "m", "schema": schema}}}) as stream:
    for event in stream:
        pass
    check("the package puts a stream together",
          stream.get_final_response().output_text == mood.output_text)
for name, more in (("previous_response_id", "resp-1"), ("store", True), ("n", 2),
                   ("tools", [{"type": "web_search"}]), ("input", [{"type": "item_reference",
                                                                    "id": "x"}])):
    try:
        client.responses.create(**{**ask, "extra_body": {name: more}})
        check(name + " is refused", False)
    except openai.BadRequestError as e:
        check(name + " is refused by its name", e.param == name)


async def ask_at_once():
    many = openai.AsyncOpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
    answers = await asyncio.gather(*[
        many.completions.create(model=model, prompt="Once", max_tokens=20, seed=1)
        for _ in range(8)])
    await many.close()
    return [a.choices[0].text for a in answers]


check("eight at once have the same text", set(asyncio.run(ask_at_once())) ==
      {whole.choices[0].text})

try:
    client.chat.completions.create(model=model, messages=messages,
                                   tools=[{"type": "web_search"}])
    check("other tools are refused", False)
except openai.BadRequestError as e:
    check("other tools are refused", e.param == "tools")
try:
    client.completions.create(model="another", prompt="a")
    check("another model is not found", False)
except openai.NotFoundError as e:
    check("another model is not found", e.code == "model_not_found")
print(f"1..{done}")
sys.exit(bad > 0)
