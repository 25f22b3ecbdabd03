"""Reads the responses from the bytes of a connection."""

import zlib

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from .errors import Disconnected, HttpError, InvalidResponse, TooLarge

MAX_HEAD = 64 * 1024
"""Bytes of the status line and all headers; also what else may arrive between two parts of the body."""


class Incoming:
    """The responses of one connection, one after the other."""

    def __init__(self) -> None:
        self._parser: HttpResponseParser | None = None
        self._reset(None, headers_only=False)
        self.complete = self.keep_alive = True  # no response is expected

    def expect(self, *, limit: int | None = None, headers_only: bool = False) -> None:
        """Read the next response, whose body has at most `limit` bytes.

        `headers_only`: the response to CONNECT has no body, whatever its headers say.
        """
        self._reset(limit, headers_only=headers_only)
        if self._parser is None:  # one is used for all responses: it takes long to make
            self._parser = HttpResponseParser(self)

    def _reset(self, limit: int | None, *, headers_only: bool) -> None:
        self._limit = limit
        self._headers_only = headers_only
        self._decoder: Decoder | None = None
        self._framing = 0
        self._size = 0
        self.status = 0
        self.reason = ""
        self.headers: dict[str, str] = {}
        """The keys are lower-case."""
        self.chunks: list[bytes] = []
        """Parts of the body that were not read yet."""
        self.buffered = 0
        self.headers_complete = False
        self.complete = False
        self.keep_alive = False
        self.error: HttpError | None = None

    def feed(self, data: bytes) -> None:
        """Read bytes of the connection; errors are kept in `error`."""
        if self._parser is None or self._ended():  # nothing was requested, or the connection will be closed
            self.keep_alive = False
            return
        self._framing += len(data)
        try:
            self._parser.feed_data(data)
        except HttpError as error:
            self.fail(error)
        except (HttpParserError, HttpParserUpgrade) as error:
            self.fail(error.__context__ if isinstance(error.__context__, HttpError) else InvalidResponse("not HTTP"))
        if self._framing > MAX_HEAD and not self.complete:
            self.fail(InvalidResponse("the headers are too large"))

    def _ended(self) -> bool:
        return self.complete or self.error is not None

    def feed_eof(self) -> None:
        """The connection ended: an error, unless this is how the body ends."""
        if self._ended():
            return
        if self.headers_complete and not {"content-length", "transfer-encoding"} & self.headers.keys():
            self._finish(keep_alive=False)
        elif self.headers_complete:
            self.fail(Disconnected("the connection ended in the middle of a response"))
        else:
            self.fail(Disconnected("the connection ended without a response"))

    def fail(self, error: HttpError) -> None:
        if self.error is None and not self.complete:
            self.error = error

    def take(self) -> bytes:
        """Return the part of the body that has arrived since the last call."""
        data = self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
        self.chunks.clear()
        self.buffered = 0
        return data

    def clear(self) -> None:
        """Free what was received: the parser and errors refer to this object, which is garbage for a while."""
        self._reset(None, headers_only=False)
        self._parser = None

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self.complete:
            self.keep_alive = False  # another response, which was not requested

    def on_status(self, status: bytes) -> None:
        self.reason += status.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.headers_complete:
            return  # a trailer
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < 200:  # an interim response; the parser raises HttpParserUpgrade for 101
            self.headers, self.reason = {}, ""
            return
        self.status = status
        self.headers_complete = True
        self._framing = 0
        if self._headers_only:
            self._parser = None  # it would go on to read a body
            self._finish(keep_alive=True)
            return
        if encoding := self.headers.get("content-encoding", "").strip().lower():
            self._decoder = Decoder(encoding)

    def on_body(self, data: bytes) -> None:
        if self.complete:
            return
        self._framing = 0
        if self._decoder is not None:
            data = self._decoder.decode(data, None if self._limit is None else self._limit - self._size + 1)
        self._size += len(data)
        if self._limit is not None and self._size > self._limit:
            raise TooLarge(self._limit)
        if data:
            self.chunks.append(data)
            self.buffered += len(data)

    def on_message_complete(self) -> None:
        if self.headers_complete and not self.complete and self._parser:  # not of an interim response
            self._finish(keep_alive=self._parser.should_keep_alive())

    def _finish(self, *, keep_alive: bool) -> None:
        if self._decoder is not None and not self._decoder.complete:
            self.fail(InvalidResponse("the compressed body is incomplete"))
            return
        self.complete, self.keep_alive = True, keep_alive


class Decoder:
    """Decompresses a body."""

    def __init__(self, encoding: str) -> None:
        if encoding not in ("gzip", "identity"):
            raise InvalidResponse("the response has an unknown Content-Encoding")
        self._gzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding == "gzip" else None
        self._started = False

    def decode(self, data: bytes, limit: int | None) -> bytes:
        """Return the decompressed data, at most `limit` bytes."""
        if self._gzip is None:
            return data
        self._started = True
        if self._gzip.eof:
            raise InvalidResponse("there is data after the compressed body")
        try:
            decoded = self._gzip.decompress(data, max(limit, 1) if limit is not None else 0)
        except zlib.error:
            raise InvalidResponse("the compressed body is invalid") from None
        if self._gzip.unused_data:
            raise InvalidResponse("there is data after the compressed body")
        return decoded

    @property
    def complete(self) -> bool:
        return self._gzip is None or self._gzip.eof or not self._started
