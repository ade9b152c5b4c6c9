"""What one request may cost the server."""

from dataclasses import dataclass

from ..processing.images import MAX_PIXELS


@dataclass(frozen=True)
class ServingLimits:
    """What one request may cost the server. A request above a limit is refused with a sentence that names the limit.

    Args:
        query_characters: length of the longest query.
        upload_bytes: size of the largest image file that is searched with.
        upload_pixels: its largest number of pixels, which is checked before it is decoded.
        uploads: uploaded images that are in memory at a time; further ones wait.
        top: the largest number of results.
        batch_size: texts or images that are encoded at a time.
        batch_seconds: how long the first query waits for others that are encoded in the same batch.
        waiting: queries that may wait to be encoded; further ones are refused with status 503.
        thumbnail_pixels: the longer side of a thumbnail.
        thumbnail_bytes: memory for thumbnails that were made.
        header_seconds: time for the client to send the headers of a request.
        body_seconds: time for the client to send the body of a request.
        stalled_seconds: time for which the client may leave a response unread before the connection is closed.
        connections: open connections; requests on further ones are refused with status 503.
    """

    query_characters: int = 500
    upload_bytes: int = 20 << 20
    upload_pixels: int = MAX_PIXELS
    uploads: int = 4
    top: int = 200
    batch_size: int = 64
    batch_seconds: float = 0.004
    waiting: int = 512
    thumbnail_pixels: int = 320
    thumbnail_bytes: int = 64 << 20
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    stalled_seconds: float = 30.0
    connections: int = 900
