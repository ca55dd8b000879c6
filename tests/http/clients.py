# SPDX-License-Identifier: MIT
"""The real Python clients against a running server.

usage: clients.py PORT CHAT_MODEL EMBED_MODEL scripted|real

With the scripted engine the answers are known and compared; with real models
only what does not depend on the weights is. Last line: "N passed, N failed".
"""
import asyncio
import json
import sys
import urllib.request

import anthropic
import ollama
import openai
import websockets

from harness import run, test

port, chat_model, embed_model, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
scripted = mode == "scripted"
base = f"http://127.0.0.1:{port}"
oai = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0, timeout=120)
ant = anthropic.Anthropic(base_url=base, api_key="none", max_retries=0, timeout=120)
oll = ollama.Client(host=base, timeout=120)


def say(text):
    """A user turn that the scripted engine answers with `text`."""
    return [{"role": "user", "content": "@say{" + text + "}" if scripted else "Say: " + text}]


def same(got, want):
    if scripted:
        assert got == want, (got, want)
    else:
        assert isinstance(got, str) and got, got


TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
CALL = '@call{{"name":"get_weather","arguments":{"city":"Oslo"}}}'


@test
def openai_chat():
    r = oai.chat.completions.create(model=chat_model, messages=say("Hello there"), max_tokens=24, temperature=0)
    same(r.choices[0].message.content, "Hello there")
    assert r.choices[0].finish_reason in ("stop", "length")
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    assert r._request_id.startswith("req_")


@test
def openai_chat_stream_usage():
    text, usage, finish = "", None, None
    for c in oai.chat.completions.create(model=chat_model, messages=say("Hello wörld 😀"), max_tokens=24, temperature=0, stream=True,
                                         stream_options={"include_usage": True}):
        if c.choices:
            text += c.choices[0].delta.content or ""
            finish = c.choices[0].finish_reason or finish
        usage = c.usage or usage
    same(text, "Hello wörld 😀")
    assert finish in ("stop", "length") and usage.completion_tokens > 0


@test
def openai_stream_equals_whole():
    kw = dict(model=chat_model, messages=say("The quick brown fox"), max_tokens=32, temperature=0, seed=1)
    whole = oai.chat.completions.create(**kw).choices[0].message.content
    parts = "".join(c.choices[0].delta.content or "" for c in oai.chat.completions.create(stream=True, **kw) if c.choices)
    assert whole == parts, (whole, parts)


@test
def openai_n_and_seed():
    r = oai.chat.completions.create(model=chat_model, messages=say("abc"), n=3, seed=7, temperature=1, max_tokens=8)
    assert [c.index for c in r.choices] == [0, 1, 2]


@test
def openai_logprobs():
    r = oai.chat.completions.create(model=chat_model, messages=say("a b"), logprobs=True, top_logprobs=2, max_tokens=4, temperature=0)
    lp = r.choices[0].logprobs.content
    assert len(lp) == r.usage.completion_tokens and len(lp[0].top_logprobs) == 2 and lp[0].logprob <= 0
    assert bytes(lp[0].bytes).decode("utf-8", "replace") == lp[0].token or "\ufffd" in lp[0].token


@test
def openai_tools():
    if not scripted:
        return
    r = oai.chat.completions.create(model=chat_model, messages=[{"role": "user", "content": CALL}], tools=[TOOL])
    m = r.choices[0].message
    assert r.choices[0].finish_reason == "tool_calls" and json.loads(m.tool_calls[0].function.arguments) == {"city": "Oslo"}
    history = [{"role": "user", "content": CALL}, m.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": m.tool_calls[0].id, "content": "rain"}]
    r = oai.chat.completions.create(model=chat_model, messages=history + say("It rains"), tools=[TOOL])
    same(r.choices[0].message.content, "It rains")
    args = ""
    for c in oai.chat.completions.create(model=chat_model, messages=[{"role": "user", "content": CALL}], tools=[TOOL], stream=True):
        for t in (c.choices[0].delta.tool_calls or []) if c.choices else []:
            args += t.function.arguments or ""
    assert json.loads(args) == {"city": "Oslo"}


@test
def openai_structured_output():
    if scripted:
        return
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
              "required": ["name", "age"], "additionalProperties": False}
    ask = [{"role": "user", "content": "A person as JSON"}]
    r = oai.chat.completions.create(model=chat_model, messages=ask, max_tokens=60, temperature=1, seed=3,
                                    response_format={"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}})
    o = json.loads(r.choices[0].message.content)
    assert set(o) == {"name", "age"} and isinstance(o["age"], int) and 0 <= o["age"] <= 99
    r = oll.chat(model=chat_model, messages=ask, format=schema, options={"num_predict": 60})
    assert set(json.loads(r.message.content)) == {"name", "age"}
    tool = {"type": "function", "function": {"name": "pick", "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo", "a\\b \"c\" / {["]}}, "required": ["city"]}}}
    for choice in ("required", {"type": "function", "function": {"name": "pick"}}):
        r = oai.chat.completions.create(model=chat_model, messages=ask, tools=[TOOL, tool] if choice != "required" else [tool], tool_choice=choice, max_tokens=60)
        call = r.choices[0].message.tool_calls[0].function
        assert r.choices[0].finish_reason == "tool_calls" and call.name == "pick" and json.loads(call.arguments)["city"] in ("Oslo", 'a\\b "c" / {[')
    args = ""
    for c in oai.chat.completions.create(model=chat_model, messages=ask, tools=[tool], tool_choice="required", max_tokens=60, stream=True):
        for t in (c.choices[0].delta.tool_calls or []) if c.choices else []:
            args += t.function.arguments or ""
    assert json.loads(args)["city"]
    r = oai.chat.completions.create(model=chat_model, messages=ask, tools=[tool], tool_choice="required", max_tokens=3)
    assert r.choices[0].finish_reason == "length"


@test
def openai_stop():
    if scripted:
        r = oai.chat.completions.create(model=chat_model, messages=say("one STOP two"), stop=["STOP"])
        assert r.choices[0].message.content == "one "
    r = oai.chat.completions.create(model=chat_model, messages=say("one two three"), max_tokens=2)
    assert r.usage.completion_tokens <= 2


@test
def openai_completions():
    prompt = "@say{x y}" if scripted else "Once upon a time"
    r = oai.completions.create(model=chat_model, prompt=prompt, max_tokens=8, temperature=0)
    same(r.choices[0].text, "x y")
    text = "".join(c.choices[0].text for c in oai.completions.create(model=chat_model, prompt=prompt, max_tokens=8, temperature=0, stream=True) if c.choices)
    assert text == r.choices[0].text


@test
def openai_embeddings():
    r = oai.embeddings.create(model=embed_model, input=["hello", "world", "hello"])
    a, b, c = (d.embedding for d in r.data)
    assert len(a) == len(b) and abs(sum(x * x for x in a) - 1) < 1e-3
    assert max(abs(x - y) for x, y in zip(a, c)) < 1e-5
    f = oai.embeddings.create(model=embed_model, input="hello", encoding_format="float").data[0].embedding
    assert max(abs(x - y) for x, y in zip(a, f)) < 1e-4


@test
def openai_embeddings_of_a_chat_model():
    v = oai.embeddings.create(model=chat_model, input=["hello", "world"]).data
    assert abs(sum(x * x for x in v[0].embedding) - 1) < 1e-3 and v[0].embedding != v[1].embedding
    assert len(oll.embed(model=chat_model, input="hello").embeddings[0]) == len(v[0].embedding)


@test
def openai_files_and_batches():
    import time
    lines = [{"custom_id": f"r{i}", "method": "POST", "url": "/v1/chat/completions",
              "body": {"model": chat_model, "messages": say(f"answer {i}"), "max_tokens": 12, "temperature": 0}} for i in range(3)]
    data = "".join(json.dumps(l) + "\n" for l in lines).encode()
    f = oai.files.create(file=("in.jsonl", data), purpose="batch")
    assert f.bytes == len(data) and oai.files.content(f.id).read() == data and f.id in [x.id for x in oai.files.list()]
    b = oai.batches.create(input_file_id=f.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"a": "b"})
    for _ in range(600):
        b = oai.batches.retrieve(b.id)
        if b.status in ("completed", "failed", "cancelled", "expired"):
            break
        time.sleep(0.1)
    assert b.status == "completed" and b.request_counts.completed == 3 and b.metadata == {"a": "b"}, b
    out = {a["custom_id"]: a["response"]["body"]["choices"][0]["message"]["content"] for a in map(json.loads, oai.files.content(b.output_file_id).text.splitlines())}
    for i in range(3):
        same(out[f"r{i}"], f"answer {i}")
    assert b.id in [x.id for x in oai.batches.list()]
    for i in (f.id, b.output_file_id):
        assert oai.files.delete(i).deleted


@test
def resumable_stream():
    """A client that is gone after some pieces reads the rest later, from where it was."""
    with oai.chat.completions.with_streaming_response.create(model=chat_model, messages=[{"role": "user", "content": "@slow{5}@long{60}" if scripted else "Count to fifty."}],
                                                             max_tokens=80, temperature=0, stream=True, extra_headers={"X-Conversation-Id": "resume me"}) as r:
        seen = b""
        for piece in r.iter_bytes():
            seen += piece
            if len(seen) > 1500:
                break
    with urllib.request.urlopen(f"{base}/v1/stream?conv_id=resume%20me&from={len(seen)}") as f:
        rest = f.read()
    with urllib.request.urlopen(f"{base}/v1/stream?conv_id=resume%20me") as f:
        assert f.read() == seen + rest
    assert rest.endswith(b"data: [DONE]\n\n")


@test
def openai_models():
    ids = [m.id for m in oai.models.list()]
    assert chat_model in ids, ids
    assert oai.models.retrieve(chat_model).id == chat_model


@test
def openai_errors():
    for kw, kind in ((dict(model="no-such-model"), openai.NotFoundError), (dict(model=chat_model, temperature=-5), openai.BadRequestError)):
        try:
            oai.chat.completions.create(messages=say("x"), **kw)
            raise AssertionError("no error for " + str(kw))
        except kind as e:
            assert e.body["message"]


@test
def openai_responses():
    r = oai.responses.create(model=chat_model, input=say("blue")[0]["content"], max_output_tokens=16, temperature=0)
    same(r.output_text, "blue")
    r2 = oai.responses.create(model=chat_model, input=say("red")[0]["content"], previous_response_id=r.id, max_output_tokens=16, temperature=0)
    same(r2.output_text, "red")
    assert r2.usage.input_tokens > r.usage.input_tokens
    assert oai.responses.retrieve(r.id).id == r.id
    text, kinds = "", []
    with oai.responses.stream(model=chat_model, input=say("one two")[0]["content"], max_output_tokens=16, temperature=0) as s:
        for e in s:
            kinds.append(e.type)
            if e.type == "response.output_text.delta":
                text += e.delta
            elif e.type in ("response.completed", "response.incomplete"):
                final = e.response
    assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete"), kinds
    assert "".join(p.text for o in final.output if o.type == "message" for p in o.content) == text
    oai.responses.delete(r.id)
    try:
        oai.responses.retrieve(r.id)
        raise AssertionError("deleted response is still there")
    except openai.NotFoundError:
        pass


@test
def ollama_lists():
    names = [m.model for m in oll.list().models]
    assert chat_model + ":latest" in names, names
    s = oll.show(chat_model)
    assert "completion" in s.capabilities and s.details.format == "gguf" and s.modelinfo["general.architecture"]
    assert isinstance(oll.ps().models, list) or oll.ps().models is not None


@test
def ollama_chat():
    r = oll.chat(model=chat_model, messages=say("Hello there"), options={"num_predict": 24, "temperature": 0})
    same(r.message.content, "Hello there")
    assert r.done and r.eval_count > 0 and r.total_duration > 0
    parts = list(oll.chat(model=chat_model, messages=say("Hello there"), options={"num_predict": 24, "temperature": 0}, stream=True))
    assert "".join(p.message.content for p in parts) == r.message.content
    assert parts[-1].done and parts[-1].done_reason in ("stop", "length")


@test
def ollama_tools_and_thinking():
    if not scripted:
        return
    r = oll.chat(model=chat_model, messages=[{"role": "user", "content": CALL}], tools=[TOOL])
    c = r.message.tool_calls[0].function
    assert c.name == "get_weather" and dict(c.arguments) == {"city": "Oslo"}
    r = oll.chat(model=chat_model, messages=[{"role": "user", "content": CALL}, r.message, {"role": "tool", "content": "rain", "tool_name": "get_weather"}] + say("ok"), tools=[TOOL])
    same(r.message.content, "ok")
    r = oll.chat(model=chat_model, messages=[{"role": "user", "content": "@think{hm}@say{yes}"}], think=True)
    assert (r.message.thinking.strip(), r.message.content) == ("hm", "yes")


@test
def ollama_generate():
    prompt = "@say{x y}" if scripted else "Once upon a time"
    r = oll.generate(model=chat_model, prompt=prompt, options={"num_predict": 8, "temperature": 0})
    same(r.response, "x y")
    assert len(r.context) > 1
    parts = list(oll.generate(model=chat_model, prompt=prompt, options={"num_predict": 8, "temperature": 0}, stream=True))
    assert "".join(p.response for p in parts) == r.response
    assert oll.generate(model=chat_model, prompt=prompt, raw=True, options={"num_predict": 4}).response is not None


@test
def ollama_embed():
    r = oll.embed(model=embed_model, input=["a", "b", "a"])
    assert len(r.embeddings) == 3 and max(abs(x - y) for x, y in zip(r.embeddings[0], r.embeddings[2])) < 1e-6
    assert len(oll.embeddings(model=embed_model, prompt="a").embedding) == len(r.embeddings[0])


@test
def ollama_create_copy_delete():
    states = [p.status for p in oll.create(model="made-here", from_=chat_model, system="You are Mario.", parameters={"temperature": 0.1}, stream=True)]
    assert states[-1] == "success", states
    oll.copy("made-here", "made-copy")
    assert "Mario" in oll.show("made-copy").modelfile
    oll.delete("made-here")
    oll.delete("made-copy")
    try:
        oll.show("made-here")
        raise AssertionError("deleted model is still there")
    except ollama.ResponseError as e:
        assert e.status_code == 404


@test
def ollama_abort_frees_the_engine():
    for i, _ in enumerate(oll.generate(model=chat_model, prompt="@slow{5}@long{400}" if scripted else "Count to a thousand: 1 2 3", raw=True, stream=True,
                                       options={"num_predict": 400})):
        if i == 2:
            break
    for _ in range(100):
        with urllib.request.urlopen(base + "/admin/stats") as f:
            if json.load(f)["active_requests"] == 0:
                return
        import time
        time.sleep(0.05)
    raise AssertionError("the aborted request still runs")


@test
def anthropic_messages():
    r = ant.messages.create(model=chat_model, max_tokens=24, extra_body={"temperature": 0}, messages=say("Hello there"), system="Be brief.")
    same(r.content[0].text, "Hello there")
    assert r.stop_reason in ("end_turn", "max_tokens") and r.usage.output_tokens > 0 and r._request_id.startswith("req_")
    with ant.messages.stream(model=chat_model, max_tokens=24, extra_body={"temperature": 0}, messages=say("Hello there"), system="Be brief.") as s:
        text = "".join(s.text_stream)
        final = s.get_final_message()
    assert text == r.content[0].text and final.stop_reason == r.stop_reason
    n = ant.messages.count_tokens(model=chat_model, messages=say("Hello there"), system="Be brief.")
    assert n.input_tokens == r.usage.input_tokens + (r.usage.cache_read_input_tokens or 0)


@test
def anthropic_tools_and_thinking():
    if not scripted:
        return
    tools = [{"name": "get_weather", "description": "d", "input_schema": TOOL["function"]["parameters"]}]
    ask = [{"role": "user", "content": CALL}]
    r = ant.messages.create(model=chat_model, max_tokens=64, messages=ask, tools=tools)
    use = r.content[0]
    assert r.stop_reason == "tool_use" and use.input == {"city": "Oslo"}
    r = ant.messages.create(model=chat_model, max_tokens=64, tools=tools, messages=ask + [{"role": "assistant", "content": [b.model_dump() for b in r.content]}, {
        "role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "rain"}, {"type": "text", "text": "@say{wet}"}]}])
    same(r.content[0].text, "wet")
    with ant.messages.stream(model=chat_model, max_tokens=2048, messages=[{"role": "user", "content": "@think{hm}@say{yes}"}],
                             thinking={"type": "enabled", "budget_tokens": 1024}) as s:
        final = s.get_final_message()
    assert [b.type for b in final.content] == ["thinking", "text"] and final.content[1].text == "yes"


@test
def anthropic_errors():
    try:
        ant.messages.create(model="no-such-model", max_tokens=4, messages=say("x"))
        raise AssertionError("no error")
    except anthropic.NotFoundError as e:
        assert e.body["error"]["type"] == "not_found_error"


@test
def langchain():
    from langchain_ollama import ChatOllama, OllamaEmbeddings
    llm = ChatOllama(model=chat_model, base_url=base, temperature=0, num_predict=16)
    whole = llm.invoke(say("Hello there")[0]["content"]).content
    same(whole, "Hello there")
    assert "".join(c.content for c in llm.stream(say("Hello there")[0]["content"])) == whole
    v = OllamaEmbeddings(model=embed_model, base_url=base).embed_documents(["a", "b"])
    assert len(v) == 2 and len(v[0]) == len(v[1])


@test
def websocket():
    async def go():
        async with websockets.connect(f"ws://127.0.0.1:{port}/v1/chat/ws") as ws:
            for i in ("a", "b"):
                await ws.send(json.dumps({"id": i, "model": chat_model, "messages": say("hi " + i), "max_tokens": 12, "temperature": 0}))
            texts, left = {"a": "", "b": ""}, 2
            while left:
                f = json.loads(await asyncio.wait_for(ws.recv(), 60))
                if f["type"] == "token":
                    texts[f["id"]] += f["delta"]
                elif f["type"] == "done":
                    left -= 1
                else:
                    raise AssertionError(f)
            for i in ("a", "b"):
                same(texts[i], "hi " + i)
            r = oai.chat.completions.create(model=chat_model, messages=say("hi a"), max_tokens=12, temperature=0)
            assert r.choices[0].message.content == texts["a"]
    asyncio.run(go())


@test
def many_at_once():
    from concurrent.futures import ThreadPoolExecutor
    kw = dict(model=chat_model, max_tokens=12, temperature=0)
    def one(i):
        return oai.chat.completions.create(messages=say(f"number {i}"), **kw).choices[0].message.content
    serial = [one(i) for i in range(4)]
    with ThreadPoolExecutor(16) as pool:
        got = list(pool.map(one, [i % 4 for i in range(32)]))
    assert got == [serial[i % 4] for i in range(32)]


run()
