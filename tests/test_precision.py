"""The precision "auto": what a processor multiplies fast, settled before a result is named."""

from dataclasses import replace

import pytest
from small import small_flow, small_recipe

from tlm_ray.compute import Compute
from tlm_ray.runs.recipes import precision
from tlm_ray.runs.recipes.precision import bf16_flags, fastest_precision

FLAGS = "processor\t: 0\nflags\t\t: fpu avx2 {}\n\nprocessor\t: 1\n"


@pytest.fixture
def processor(tmp_path, monkeypatch):
    """Make a processor's file, of a machine where nothing keeps oneDNN from its instructions."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")

    def make(flags):
        (tmp_path / "cpuinfo").write_text(FLAGS.format(flags))
        return str(tmp_path / "cpuinfo")

    return make


def test_instructions_for_bf16_are_found(processor):
    assert bf16_flags(processor("avx512_bf16 amx_bf16 amx_tile")) == ["avx512_bf16", "amx_bf16"]
    assert bf16_flags(processor("avx512f avx512_vnni")) == []
    assert bf16_flags(processor("") + ".absent") == []


@pytest.mark.parametrize(("limit", "found"), [("AVX2", []), ("avx512_core", []), ("AVX512_CORE_AMX", ["avx512_bf16"])])
def test_instructions_that_onednn_is_kept_from_are_not_there(processor, monkeypatch, limit, found):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert bf16_flags(processor("avx512_bf16")) == found


@pytest.fixture
def flags(monkeypatch):
    """Have a processor with these instructions, or none."""
    fastest_precision.cache_clear()
    found: list[str] = []
    monkeypatch.setattr(precision, "bf16_flags", lambda: found)
    yield found
    fastest_precision.cache_clear()


def test_auto_is_settled_before_a_result_is_named_and_said_once(data, tmp_path, flags, capsys):
    auto, flow = small_recipe(precision="auto"), small_flow(data, tmp_path)
    in_fp32 = flow.stages(auto, "topics", 0)
    assert in_fp32.metrics.fingerprint == flow.stages(replace(auto, precision="fp32"), "topics", 0).metrics.fingerprint
    assert in_fp32.stage_one.parameters["precision"] == "fp32"
    assert capsys.readouterr().out.splitlines() == [
        "precision auto: fp32, this processor has neither of avx512_bf16, amx_bf16"
    ]
    fastest_precision.cache_clear()
    flags.append("avx512_bf16")
    assert flow.stages(auto, "topics", 0).stage_two.parameters["precision"] == "bf16"


def test_gpus_multiply_bf16_whatever_the_driver_has(data, tmp_path, flags):
    flow = small_flow(data, tmp_path, compute=Compute(resources={"GPU": 1}))
    assert flow.stages(small_recipe(precision="auto"), "topics", 0).stage_two.parameters["precision"] == "bf16"


def test_a_precision_that_is_asked_for_stays(data, tmp_path, flags):
    for asked in ("fp32", "bf16"):
        stages = small_flow(data, tmp_path).stages(small_recipe(precision=asked), "topics", 0)
        assert stages.stage_one.parameters["precision"] == asked
