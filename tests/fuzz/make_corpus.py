"""Writes the seeds of the fuzz targets: corpus/TARGET/seed_*, and words.dict.

Usage: .venv/bin/python tests/fuzz/make_corpus.py

Other files of the corpus stay: they are inputs that once found a bug.
"""

import base64
import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import counterweight_rl as cw
import numpy as np
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service
from counterweight_rl._gen.counterweight.v1 import group_baseline_pb2 as groups
from counterweight_rl._gen.counterweight.v1 import method_pb2 as method
from counterweight_rl._gen.counterweight.v1 import sums_pb2
from counterweight_rl._gen.counterweight.v1 import tensor_pb2 as tensor
from google.protobuf import json_format

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The order of server/engine/dialects/dialects.cc.
DIALECTS = (
    *("verl", "trl", "skyrl", "openrlhf", "slime", "miles", "nemo_rl", "ms_swift"),
    *("prime_rl", "areal", "roll", "tinker"),
)
ALL_TENSORS = 0x5F  # dialect_fuzz.cc: everything present but group ids, and a loss wanted
NUMBERS = (-1.0, -0.5, -2.25, -0.75, -1.5, -3.0)
INPUTS = (
    tensor.TENSOR_ROLE_ROLLOUT_LOG_PROBS,
    tensor.TENSOR_ROLE_OLD_LOG_PROBS,
    tensor.TENSOR_ROLE_CURRENT_LOG_PROBS,
    tensor.TENSOR_ROLE_REF_LOG_PROBS,
    tensor.TENSOR_ROLE_ADVANTAGES,
)


def write(target: str, name: str, data: bytes) -> None:
    """Adds one seed."""
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed_{name}").write_bytes(data)


def presets() -> list[str]:
    """Names of all methods, as `make docs` wrote them down."""
    text = (ROOT / "kernels" / "METHODS.md").read_text()
    return re.findall(r"^\| \[`(\w+)`\]\(#", text, re.MULTILINE)


def blocks() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields blocks of the goldens that add a new key or word."""
    seen: set[tuple[str, ...]] = set()
    for path in sorted((ROOT / "tests" / "golden").glob("*/*.json")):
        if path.parent.name == "groups":  # has no blocks
            continue
        golden = json.loads(path.read_text())
        facts = {(golden["dialect"], *fact) for fact in describe(golden["params"])}
        if not facts <= seen:
            seen |= facts
            yield golden["dialect"], golden["params"]


def describe(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields each key with its value; for numbers, and text with digits, only the type."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from describe(inner, f"{path}.{key}")
    elif isinstance(value, list):
        yield path, "list"
        for inner in value:
            yield from describe(inner, f"{path}[]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, "number"
    elif isinstance(value, str) and re.search(r"\d.*\d|\s", value):
        yield path, "text"
    else:
        yield path, repr(value)


def request(*, is_stream: bool = False) -> service.CorrectRequest:
    """A batch of two rows of three, without a method."""
    made = service.CorrectRequest(request_id="seed")
    made.layout.padded.num_sequences = 2
    made.layout.padded.length = 3
    for shift, role in enumerate(INPUTS):
        numbers = [number - shift / 8 for number in NUMBERS]
        data = struct.pack("<6f", *numbers)
        made.tensors.add(role=role, dtype=tensor.D_TYPE_F32, data=b"" if is_stream else data)
    mask = b"" if is_stream else bytes((1, 1, 0, 1, 1, 1))
    made.tensors.add(role=tensor.TENSOR_ROLE_RESPONSE_MASK, dtype=tensor.D_TYPE_U8, data=mask)
    return made


def configuration() -> method.CorrectionConfig:
    """A configuration that uses every message there is."""
    config = method.CorrectionConfig(rule_evaluation=method.RULE_EVALUATION_SEQUENTIAL)
    config.importance_weight.ratio_source = method.RATIO_SOURCE_OLD_ROLLOUT
    config.importance_weight.level = method.LEVEL_TOKEN
    config.importance_weight.bound = method.BOUND_TRUNCATE
    config.importance_weight.upper = 2.0
    rule = config.rules.add(name="rule", ratio_source=method.RATIO_SOURCE_OLD_ROLLOUT)
    rule.estimator = method.ESTIMATOR_K3
    rule.aggregation = method.AGGREGATION_MEAN
    rule.upper = 0.5
    rule.condition = method.RULE_CONDITION_ALWAYS
    rule.effect = method.RULE_EFFECT_DROP
    loss = config.policy_loss
    loss.surrogate = method.SURROGATE_PPO_CLIP
    loss.ratio_source = method.RATIO_SOURCE_CURRENT_OLD
    loss.aggregation = method.LOSS_AGGREGATION_TOKEN_MEAN
    loss.denominator = method.LOSS_DENOMINATOR_GLOBAL
    loss.clip_low, loss.clip_high = 0.2, 0.28
    config.kl_penalty.estimator = method.KL_ESTIMATOR_K3
    config.kl_penalty.coefficient = 0.01
    return config


def write_headers() -> None:
    """Seeds of `header`: every preset, a configuration, some blocks, shared memory."""

    def add(name: str, options: int, made: service.CorrectRequest) -> None:
        write("header", name, bytes((options,)) + made.SerializeToString())

    for index, preset in enumerate(presets()):
        made = request(is_stream=index % 4 == 1)
        made.method.preset.name = preset
        add(f"preset_{preset}", int(index % 4 == 1), made)
    made = request()
    made.method.config.CopyFrom(configuration())
    made.global_counts.num_tokens = 9
    made.global_counts.num_sequences = 4
    made.outputs.extend((tensor.TENSOR_ROLE_TOKEN_REASONS, tensor.TENSOR_ROLE_GRADIENT))
    made.labels.run = "run"
    made.non_finite_policy = tensor.NON_FINITE_POLICY_DROP
    add("config", 0, made)
    for index, (system, block) in enumerate(blocks()):
        if index % 6 == 0:
            made = request()
            made.method.dialect.system = system
            json_format.ParseDict(block, made.method.dialect.block)
            made.compute_loss = True
            made.group_ids.extend((7, 7) if system == "skyrl" else ())
            add(f"dialect_{index:03}", 0, made)
    for is_stream in (False, True):
        made = request(is_stream=is_stream)
        made.method.preset.name = "token_tis"
        made.labels.policy_version = 9
        versions = b"" if is_stream else struct.pack("<6i", 9, 8, -1, 6, 2, 0)
        role = tensor.TENSOR_ROLE_POLICY_VERSIONS
        made.tensors.add(role=role, dtype=tensor.D_TYPE_I32, data=versions)
        add("versions_stream" if is_stream else "versions", int(is_stream), made)
    made = request()
    made.method.preset.name = "token_tis"
    made.labels.policy_version = 9
    made.version_spans.add(sequence=0, start=0, end=2, policy_version=9)
    made.version_spans.add(sequence=1, start=1, end=3, policy_version=4)
    add("version_spans", 0, made)
    made = request(is_stream=True)
    made.method.preset.name = "token_tis"
    made.layout.packed.sequence_lengths.extend((0, 5, 1))
    for index, each in enumerate(made.tensors):
        each.shared_memory.handle = b"r"
        each.shared_memory.offset = index * 64
        each.shared_memory.length = 6 if each.dtype == tensor.D_TYPE_U8 else 24
    weights = made.destinations.add(role=tensor.TENSOR_ROLE_WEIGHTS, dtype=tensor.D_TYPE_F32)
    weights.shared_memory.handle = b"w"
    weights.shared_memory.length = 24
    add("shared_memory", 2, made)


def write_dialects() -> None:
    """Seeds of `dialect`: blocks as JSON, some of them as bytes."""
    for index, (system, block) in enumerate(blocks()):
        is_json = index % 8 != 0
        head = bytes((DIALECTS.index(system), ALL_TENSORS, int(is_json), 3, 7))
        if is_json:
            body = json.dumps(block).encode()
        else:
            body = json_format.ParseDict(block, method.Dialect().block).SerializeToString()
        write("dialect", f"{index:03}_{system}", head + body)


def write_frames() -> None:
    """Seeds of `frame`: valid frames, and some that are barely frames."""
    header = service.CorrectStreamRequest(header=request(is_stream=True)).SerializeToString()
    chunk = service.CorrectStreamRequest(
        chunk=service.Chunk(tensor=3, offset=1 << 40, data=b"0123456789")
    ).SerializeToString()
    for name, sizes, message in (
        ("header", b"", header),
        ("chunk", b"", chunk),
        ("chunk_in_pieces", b"\x01\x00\x03", chunk),
        ("two", b"\x05", header + chunk),
        ("unknown_fields", b"\x02", b"\x80\x01\x05\x1d1234\x19" + b"12345678" + chunk),
        ("data_twice", b"", b"\x12\x08\x1a\x01a\x1a\x03bcd"),
        ("tag_of_six_bytes", b"", b"\x92\x80\x80\x80\x80\x00\x00"),
        ("length_of_six_bytes", b"", b"\x12\x80\x80\x80\x80\x80\x00"),
        ("group", b"", b"\x12\x02\x0b\x0c"),
        ("number_of_ten_bytes", b"", b"\x12\x0b\x08" + b"\x80" * 9 + b"\x7f"),
        ("many_chunks", b"\x01", b"\x12\x00" * 400),
    ):
        write("frame", name, bytes((len(sizes),)) + sizes + message)


def write_scripts() -> None:
    """Seeds of the targets with a list of choices as input."""
    packet = struct.pack("<4sIIIQ16x", b"CWM1", 1, 2, 0, 4096)
    write("shared_memory_control", "register", b"\x00" + packet)
    write("shared_memory_control", "release", b"\x00CWM1\x02" + bytes(19) + bytes(range(16)))
    # Register for reading and for writing, release one, send bytes, leave.
    register = bytes((7, 5, 2, 0)), bytes((7, 5, 1, 1))
    write("shared_memory_control", "client", b"\x01" + b"".join(register) + b"\x01\x01\x00\x0aCWM1")
    write("shared_memory_control", "hang_up", b"\x01" + register[0] + b"\x03\x02")
    # Too many registrations, a sparse file, one without seals, several descriptors.
    write("shared_memory_control", "limits", b"\x01" + register[0] * 5)
    write(
        "shared_memory_control",
        "sparse",
        b"\x01" + bytes((7, 2, 2, 0, 7, 3, 2, 0, 0, 7, 5, 2, 241)),
    )
    packet = struct.pack("<4sIIIQ16x", b"CWM1", 3, 1, 0, 4096) + bytes(range(80))
    write("shared_memory_control", "register_device", b"\x00" + packet)
    # Device memory: a part of it, more than exists, an unknown handle; and a release.
    lent = bytes((4, 1, 0, 8)), bytes((4, 0, 48, 1)), bytes((4, 201, 0, 8, 5))
    write("shared_memory_control", "device", b"\x01" + b"".join(lent) + b"\x01\x01\x00")
    packet = struct.pack("<4sIIIQ16x", b"CWM1", 4, 2, 0, 8192) + bytes(range(16))
    write("shared_memory_control", "register_parts", b"\x00" + packet)
    # Two parts of a page, of two pages, of three; none; and a release.
    parts = bytes((5, 2, 2)), bytes((5, 2, 4)), bytes((5, 2, 6)), bytes((1, 1, 5, 0, 2))
    write("shared_memory_control", "parts", b"\x01" + b"".join(parts))
    rows = bytes((3, 4, 0, 5))
    tensors = bytes((2, 2, 3, 1))
    chunks = b"".join(bytes((0x2F, each)) + b"\x01" * 10 for each in (0, 1, 2, 0, 1, 0, 0))
    write("stream_batch", "in_turn", rows + tensors + chunks)
    write("stream_batch", "wrong_mask", rows + tensors + bytes((0x21, 1)) + b"\x02" * 10)
    for index in range(16):
        layout = bytes((4, 0, 3, 0, 7, 2)) if index % 2 else bytes((4, 1, 6))
        head = bytes((index,)) + layout + bytes((index % 4,))
        write("stream_call", f"whole_{index:02}", head + bytes((index % 2, 3, 13 + index)))
    head = bytes((0, 4, 1, 6, 1))
    in_turn = b"".join(bytes((16 * each + 5, 40)) for each in (4, 0, 1, 2, 3, 0, 1, 2, 3))
    write("stream_call", "in_turn", head + b"\x00" + in_turn)
    write("stream_call", "nan", bytes((0, 4, 1, 6, 0x1D, 0, 3, 200)))
    write("stream_call", "cancel", head + b"\x05" + in_turn[:6])
    write("stream_call", "cancel_at_result", head + b"\x03\x01\x03\xff")
    write("stream_call", "bytes", head + b"\x01\x00\x03\x12\x01\x08")
    write("stream_call", "wrong", head + b"\x00\x02\x00\x01")
    write("stream_call", "no_header", head + b"\x04\x05\x04")


def write_texts() -> None:
    """Seeds of the targets that read text."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
    for name, text in (
        ("sampled", f"00-{trace}-01"),
        ("not_sampled", f"00-{trace}-00"),
        ("later", f"cc-{trace}-01-more"),
        ("no_version", f"ff-{trace}-01"),
        ("zero", f"00-{'0' * 32}-00f067aa0ba902b7-01"),
    ):
        write("traceparent", name, text.encode())
    token = hashlib.sha256(b"seed-token-0123456789").hexdigest()
    other = hashlib.sha256(b"x").hexdigest()
    for name, text in (
        ("one", f"trainer sha256:{token}\n"),
        ("several", f"# who\n\n a.b_c-1 \tsha256:{token}\r\nother sha256:{other.upper()}"),
        ("twice", f"a sha256:{token}\nb sha256:{token}\n"),
        ("short", f"a sha256:{token[:-1]}\n"),
        ("more", f"a sha256:{token} x\n"),
        ("none", "# nobody\n"),
    ):
        write("token_file", name, text.encode())
    password = base64.b64encode(b"me:seed:token-0123456789").decode()
    for name, lines in (
        ("metrics", ("GET /metrics HTTP/1.1", "Host: 127.0.0.1:9464", "Accept-Encoding: gzip")),
        ("page", ("HEAD /page.json?run=a%20b+c&x HTTP/1.0", "host: [::1]:9464")),
        ("whole", ("GET http://metrics.example:9464/?x HTTP/1.1", "Host: other")),
        ("bearer", ("GET / HTTP/1.1", "Authorization: Bearer abc", "Host: node_7")),
        ("basic", ("GET / HTTP/1.1", f"Authorization: Basic {password}")),
        ("folded", ("GET / HTTP/1.1", "Host: a", " b")),
        ("password", (f"Basic {password}",)),
    ):
        write("web_request", name, "\r\n".join(lines).encode())


def write_publications() -> None:
    """Seeds of `publication`: sums that a batch may have, and some that none has."""
    made = service.PublishRequest(request_id="seed")
    made.labels.run = "run"
    made.labels.policy_version = 9
    batch = made.sums
    batch.sequences, batch.nonempty_sequences, batch.kept_sequences = 8, 7, 6
    batch.tokens, batch.kept_tokens = 100, 90
    batch.drift.log_ratio, batch.drift.k2, batch.drift.k3 = -1.5, 2.25, 2.125
    batch.drift.token_histogram.extend((1, 2, 3, 4, 10, 60, 10, 4, 3, 2, 1))
    batch.drift.sequence_histogram.extend((0, 0, 0, 1, 1, 3, 2, 0, 0, 0, 0))
    write("publication", "plain", made.SerializeToString())
    made.method_of_batch.method.preset.name = "token_tis"
    made.method_of_batch.facts = 3
    write("publication", "method", made.SerializeToString())
    made.ClearField("method_of_batch")
    batch.rules.add(name="rule", dropped_tokens=10, dropped_sequences=1)
    batch.weight.weight, batch.weight.weight_squared, batch.weight.max = 101, 104.5, 2
    batch.loss.total = -0.5
    batch.loss.kl_penalty.penalty = 0.875
    batch.staleness.unknown_tokens = 7
    write("publication", "all_parts", made.SerializeToString())
    batch.kept_tokens = 101
    write("publication", "more_kept", made.SerializeToString())
    batch.drift.k3 = math.nan
    write("publication", "nan", made.SerializeToString())
    write("publication", "empty", service.PublishRequest(request_id="e").SerializeToString())


def write_messages() -> None:
    """Seeds of `c_abi`: as protobuf and as JSON, and some that are neither."""
    for index, preset in enumerate(presets()[::6]):
        made = request(is_stream=True)
        made.method.preset.name = preset
        head = bytes((index % 8, 0xBD))
        is_json = index % 2 == 1
        body = json_format.MessageToJson(made).encode() if is_json else made.SerializeToString()
        write("c_abi", preset, head + body)
    made = request(is_stream=True)
    made.method.config.CopyFrom(configuration())
    made.global_counts.num_tokens = 9
    made.global_counts.num_sequences = 4
    write("c_abi", "config", b"\x01\xbd" + json_format.MessageToJson(made).encode())
    write("c_abi", "data", b"\x00\xbd" + request().SerializeToString())
    write("c_abi", "not_json", b"\x01\x00{'a': [")
    write("c_abi", "deep", b"\x01\x00" + b'{"method":{"dialect":{"block":' + b'{"a":' * 300)


def part(method: str, first: int, *, metrics: bool = False) -> sums_pb2.PartialSums:
    """The sums of two rows of three tokens."""
    numbers = np.array(NUMBERS, np.float32).reshape(2, 3)
    with cw.Client("local:?threads=1") as client:
        result = client.correct(
            rollout_log_probs=numbers,
            old_log_probs=numbers - np.float32(first / 8),
            current_log_probs=numbers,
            advantages=-numbers,
            response_mask=np.array(((1, 1, 0), (1, 1, 1)), np.uint8),
            method=method,
            metrics=metrics,
            partial_sums=True,
            omit_loss=True,
        )
    assert result.sums is not None
    return sums_pb2.PartialSums(sums=result.sums.sums, maxima=result.sums.maxima)


def write_step_reports() -> None:
    """Seeds of `step_report`: both sides, one, a part, and values that none has."""
    receipt = {"fingerprint": 7, "tokens": 100, "changed_tokens": 90, "weight_excess": 3.0}
    labels = {"run": "run", "step": 1}
    made = service.ReportStepRequest(request_id="id", labels=labels, tokens=100, issued=receipt)
    write("step_report", "one_side", made.SerializeToString())
    made.applied.CopyFrom(made.issued)
    made.skipped_batches["late"] = 2
    made.ratio_all_one = True
    write("step_report", "used", made.SerializeToString())
    made.applied.fingerprint += 1
    made.num_reports = 1
    write("step_report", "replaced", made.SerializeToString())
    made.applied.weight_excess = math.nan
    made.num_reports = 2
    write("step_report", "part", made.SerializeToString())
    made.issued.changed_tokens = 101
    write("step_report", "more_changed", made.SerializeToString())


def write_declarations() -> None:
    """Seeds of `declaration`: a preset, a config, a block, and labels that no declaration has."""
    labels = {"run": "run"}
    made = service.DeclareRunRequest(request_id="id", labels=labels)
    made.method.preset.name = "token_tis_ppo_clip"
    write("declaration", "preset", made.SerializeToString())
    made.labels.step = 1
    write("declaration", "step", made.SerializeToString())
    made.labels.ClearField("step")
    made.method.config.rules.add().upper = 2.0
    write("declaration", "config", made.SerializeToString())
    made.method.dialect.system = "verl"
    made.method.dialect.block.update({"rollout_is": "token", "rollout_is_threshold": 2.0})
    write("declaration", "block", made.SerializeToString())


def write_groups() -> None:
    """Seeds of `groups`: estimators, a system's name, and rows that differ in their lengths."""
    made = groups.GroupAdvantagesRequest(request_id="id", rewards=[1, 0, math.nan, 3, 3])
    made.group_ids.extend([7, 7, 7, -1, -1])
    made.tokens.extend([3, 2, 1, 4, 0])
    made.kept_tokens.extend([3, 1, 1, 0, 0])
    for estimator in groups.GroupEstimator.values()[1:]:
        made.baseline.estimator = estimator
        made.baseline.epsilon = 1e-6
        write("groups", f"estimator_{estimator}", made.SerializeToString())
    made.baseline.std = groups.REWARD_STD_OTHERS
    made.baseline.clip = 1.5
    write("groups", "others", made.SerializeToString())
    made.baseline.Clear()
    for system in ("slime.grpo", "verl.gpro"):
        made.baseline.system = system
        write("groups", system.replace(".", "_"), made.SerializeToString())


def write_merges() -> None:
    """Seeds of `merge`, and of `c_abi`: parts that add up, and some that do not."""
    small, drops = "token_tis", "geo_rs_token_tis_ppo_clip"
    for name, methods, metrics in (
        ("one", (small,), False),
        ("three", (small, small, small), False),
        ("loss", (drops, drops), False),
        ("two_methods", (small, drops), False),
        ("metrics", (small,), True),
        ("metrics_of_two", (drops, drops), True),
    ):
        made = service.MergeSumsRequest()
        for index, each in enumerate(methods):
            made.parts.append(part(each, index, metrics=metrics))
        write("merge", f"{name}_without_method", made.SerializeToString())
        made.method.preset.name = methods[0]
        write("merge", name, made.SerializeToString())
        write("c_abi", f"merge_{name}", b"\x08\x00" + made.SerializeToString())
    write("c_abi", "merge_json", b"\x09\x00" + json_format.MessageToJson(made).encode())
    made.parts[1].sums[1] = -1
    write("merge", "negative_count", made.SerializeToString())
    made.parts[1].sums[1] = 1
    made.parts[1].sums[40] = math.inf
    made.parts[0].sums[41] = math.nan
    made.parts[0].maxima[-1] = math.nan
    write("merge", "not_finite", made.SerializeToString())
    del made.parts[1].sums[-1]
    write("merge", "short", made.SerializeToString())
    write("merge", "no_sums", service.MergeSumsRequest(parts=[{}]).SerializeToString())


def write_words() -> None:
    """Writes a dictionary of the words of methods, presets and blocks."""
    words = set(presets()) | set(DIALECTS)
    methods = "".join(path.read_text() for path in (ROOT / "kernels" / "methods").glob("*.cc"))
    words |= set(re.findall(r'"([a-z_0-9]+)"', methods))
    for _, block in blocks():
        for path, value in describe(block):
            words |= {part for part in re.split(r"[.\[\]]+", path) if part}
            words |= {value.strip("'")} if value.startswith("'") else set()
    plain = (word for word in sorted(words) if re.fullmatch(r"[A-Za-z_][\w-]*", word))
    (HERE / "words.dict").write_text("".join(f'"{word}"\n' for word in plain))


def main() -> None:
    """Replaces all seeds."""
    for old in (HERE / "corpus").glob("*/seed_*"):
        old.unlink()
    write_headers()
    write_dialects()
    write_frames()
    write_scripts()
    write_texts()
    write_publications()
    write_step_reports()
    write_declarations()
    write_groups()
    write_messages()
    write_merges()
    write_words()


if __name__ == "__main__":
    main()
