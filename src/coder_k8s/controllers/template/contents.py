"""Checks that versions in coderd have the files that their messages claim.

The message of a version has the digest of its content, and a template administrator of Coder can change messages. So a
version that the status does not have is only used if its archive in coderd is that of the source. A version cannot get
another archive, so that each one is compared once. Values of variables cannot be read from coderd, and are not checked.
"""

from coder_k8s.api.template import CoderTemplate
from coder_k8s.coderd import errors
from coder_k8s.kube.objects import Key

from .sources import Source, SourceReader, Summary
from .versions import Version
from .views import Target


class ContentCheck:
    """Compares archives, and keeps which ones have the current content of each template."""

    def __init__(self, sources: SourceReader) -> None:
        self._sources = sources
        self._checked: dict[Key, tuple[str, dict[str, bool]]] = {}

    def forget(self, key: Key) -> None:
        self._checked.pop(key, None)

    async def content(self, template: CoderTemplate, source: Summary) -> Source:
        """Return the content of the source; raise `Unavailable` if it is not the one that was summarized."""
        found = await self._sources.read(template)
        if found.digest != source.digest:
            raise errors.Unavailable("the source changed while it was read")
        return found

    def keep(self, template: CoderTemplate, source: Summary, file: str) -> None:
        """Keep that an archive, which was just uploaded, has the content of the source."""
        self._known(template, source)[file] = True

    async def has_content(self, template: CoderTemplate, target: Target, source: Summary, version: Version) -> bool:
        """Whether a version has the content of the source."""
        known = self._known(template, source)
        if version.file not in known:
            wanted = (await self.content(template, source)).archive
            try:
                known[version.file] = await target.coderd.download(version.file) == wanted
            except errors.NotFound:
                known[version.file] = False
        return known[version.file]

    def _known(self, template: CoderTemplate, source: Summary) -> dict[str, bool]:
        digest, known = self._checked.get(template.key, ("", {}))
        if digest != source.digest:
            known = {}
            self._checked[template.key] = (source.digest, known)
        return known
