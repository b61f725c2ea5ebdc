"""What --dry-run tells of the combinations that are left out."""

from __future__ import annotations

from runner.cli.plan_table import combinations
from runner.plan.plan import Skip


def skip(image: str, framework: str, workload: str) -> Skip:
    return Skip(
        image=image,
        framework=framework,
        workload=workload,
        precision="fp32",
        mode="default",
        device_kind="cuda",
        device_model="",
        reason="it needs a GPU",
    )


def test_a_few_are_named_and_many_of_an_image_are_counted() -> None:
    few = [skip("torch-1-cu1", "torch", workload) for workload in ("cnn-cifar10", "gru-imdb")]
    many = [
        skip("jax-1-cu1", framework, workload)
        for framework in ("jax", "keras_jax")
        for workload in ("cnn-cifar10", "gru-imdb", "ops")
    ]
    assert combinations(few + many) == [
        "torch-1-cu1 (torch, cnn-cifar10, fp32)",
        "torch-1-cu1 (torch, gru-imdb, fp32)",
        "jax-1-cu1 (6 cells of jax, keras_jax)",
    ]
