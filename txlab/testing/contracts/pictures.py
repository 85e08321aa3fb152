"""Data with pictures: what their pixels and labels are."""

from typing import Any

import torch

from txlab.testing.assertions import expect, finite
from txlab.testing.harness import Subject, contract
from txlab.testing.prepared import prepared


def pictured(subject: Subject) -> bool:
    """Whether rows have pictures."""
    return "pixels" in subject.option.cls.keys


@contract("data", when=pictured)
def pictures_are_well_formed(subject: Subject) -> None:
    """Pixels [b c h w] of the size asked for, float32 and finite; classes from 0 up, as told."""
    for fields, shape in (({}, (3, 8, 8)), ({"image_size": 12, "channels": 1}, (1, 12, 12))):
        with prepared(subject, **fields) as built:
            for part in (built.train, built.val):
                batch: Any = part.batch(list(range(len(part))))
                pixels = batch["pixels"]
                expect(
                    pixels.shape == (len(part), *shape) and pixels.dtype == torch.float32,
                    f"pixels are {tuple(pixels.shape)} of {pixels.dtype}, expected {shape} each",
                )
                finite(pixels, "pixels")
                expect(bool((pixels.flatten(1).std(1) > 0).all()), "a picture is all of one value")
                if "tokens" not in batch:
                    low, high = int(batch["labels"].min()), int(batch["labels"].max())
                    n = built.facts["classes"]
                    expect(0 <= low <= high < n, f"labels {low} to {high} of {n} classes")


@contract("data", when=pictured)
def pixels_are_normalised(subject: Subject) -> None:
    """`mean` is taken from the values and `std` divides them."""
    fields: list[dict[str, Any]] = [{"mean": 0.0, "std": 1.0}, {"mean": 0.5, "std": 0.25}]
    found = []
    for given in fields:
        with prepared(subject, **given) as built:
            found.append(built.val.batch([0])["pixels"])
    expect(0 <= float(found[0].min()) <= float(found[0].max()) <= 1, "values are not from 0 to 1")
    expect(
        torch.allclose((found[0] - 0.5) / 0.25, found[1], atol=1e-5), "mean and std are not applied"
    )


@contract("data", when=pictured)
def augmentation_is_fresh_and_for_training_only(subject: Subject) -> None:
    """Augmented pictures differ between epochs only; held-out ones are as they are."""
    with prepared(subject, augment="shift") as built, prepared(subject) as plain:
        rows = list(range(min(6, len(built.train))))
        one, same, other = (
            built.train.drawn(rows, [epoch] * len(rows))["pixels"] for epoch in (0, 0, 1)
        )
        expect(torch.equal(one, same), "the same epoch gives another picture")
        expect(not torch.equal(one, other), "another epoch gives the same pictures")
        held_out = [made.val.batch(list(range(len(made.val))))["pixels"] for made in (built, plain)]
        expect(torch.equal(*held_out), "held-out pictures are augmented")
