"""Broken data with pictures."""

from typing import Any

from tests.testing.mutant import caught_by
from txlab.data import Captions, Images


@caught_by("pictures_are_well_formed", "pixels are")
class ChannelsLast(Images):
    """Pixels [b h w c]."""

    def shown(self, picture: Any, **about: Any) -> Any:
        return super().shown(picture, **about).permute(1, 2, 0)


@caught_by("pixels_are_normalised", "mean and std are not applied")
class ForgetsTheMean(Captions):
    """Divides by `std` alone."""

    def shown(self, picture: Any, **about: Any) -> Any:
        config: Any = self.config
        return super().shown(picture, **about) + config.mean / config.std


@caught_by("augmentation_is_fresh_and_for_training_only", "held-out pictures are augmented")
class AugmentsAll(Images):
    """Changes held-out pictures too."""

    def shown(self, picture: Any, *, training: bool, **about: Any) -> Any:
        return super().shown(picture, training=True, **about)


@caught_by("augmentation_is_fresh_and_for_training_only", "another epoch gives the same pictures")
class AugmentsOnce(Captions):
    """Changes a picture the same way in each epoch."""

    def shown(self, picture: Any, *, training: bool, epoch: int = 0, number: int = 0) -> Any:
        return super().shown(picture, training=training, epoch=0, number=number)
