"""The table that selects the program of an image."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = "ghcr.io/coder/coder"
CODER_DEFAULTS = {
    "CODER_PROVISIONER_DAEMONS": "0",  # they would download terraform
    "CODER_TELEMETRY_ENABLE": "false",
    "CODER_UPDATE_CHECK": "false",
}


@dataclass(frozen=True)
class Image:
    """What an image contains: its entry point, its programs by name, and its environment variables."""

    entrypoint: tuple[str, ...]
    programs: Mapping[str, Path] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> dict[str, str]:
        """The programs by their path in the image, which scripts can contain."""
        return {name: str(program) for name, program in self.programs.items() if name.startswith("/")}

    def command(self, command: list[str], args: list[str]) -> list[str]:
        """Return the words to execute; `command` replaces the entry point."""
        name, *rest = command or self.entrypoint
        return [str(self.programs.get(name, name)), *rest, *args]


Images = Mapping[str, Image]


def coder_image(program: Path) -> Image:
    """Return the image of Coder, with this build of `coder`."""
    return Image(("/opt/coder", "server"), {"coder": program, "/opt/coder": program}, CODER_DEFAULTS)


def coder_image_name(version: str) -> str:
    return f"{REPOSITORY}:v{version}"


def coder_images(programs: Mapping[str, Path]) -> dict[str, Image]:
    """Return the images of Coder, from the builds by version."""
    return {coder_image_name(version): coder_image(program) for version, program in programs.items()}
