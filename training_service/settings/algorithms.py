"""What may be trained if nothing is configured."""

from job_tracker.catalog import (
    Algorithm,
    DockerRecipe,
    KubernetesRecipe,
    Parameter,
    ProcessRecipe,
)


def default_algorithms() -> dict[str, Algorithm]:
    """The algorithms that come with the service, by name."""
    return {
        "intent-classification": Algorithm(
            description="Classifies short texts: a bag of embeddings and a fully connected layer (PyTorch)",
            parameters={
                "EPOCHS": Parameter(type="int", default="15", minimum=1, maximum=10_000),
                "LR": Parameter(type="float", default="4", exclusive_minimum=0, maximum=1000),
                "BATCH_SIZE": Parameter(type="int", default="64", minimum=1, maximum=1 << 16),
                "FC_SIZE": Parameter(type="int", default="128", minimum=1, maximum=1 << 16),
                "SEED": Parameter(type="int", default="1", minimum=0, maximum=(1 << 31) - 1),
                "CHECKPOINT_EVERY_SECONDS": Parameter(
                    type="float", default="60", exclusive_minimum=0, maximum=86_400
                ),
                "CHECKPOINT_EVERY_STEPS": Parameter(type="int", minimum=0, maximum=10**9),
                "CHECKPOINT_KEEP": Parameter(type="int", minimum=1, maximum=1000),
            },
            process=ProcessRecipe(command=("python", "-m", "intent_classification.train")),
            docker=DockerRecipe(
                image="intent-classification:0.1.0", command=("python", "-m", "intent_classification.train")
            ),
            kubernetes=KubernetesRecipe(
                image="intent-classification:0.1.0", command=("python", "-m", "intent_classification.train")
            ),
        ),
        "language-model": Algorithm(
            description="Trains a small GPT on bytes, by any parallelism (PyTorch): see docs/parallelism.md",
            other_parameters=True,
            check=("python", "-m", "language_model.check"),
            process=ProcessRecipe(command=("python", "-m", "language_model.train")),
            docker=DockerRecipe(
                image="language-model:0.1.0", command=("python", "-m", "language_model.train")
            ),
            kubernetes=KubernetesRecipe(
                image="language-model:0.1.0", command=("python", "-m", "language_model.train")
            ),
        ),
    }
