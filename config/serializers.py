"""How values are kept in the cache: as JSON, so that nothing read from Redis can run code."""

from typing import Any

import msgspec


class JSONSerializer:
    """The two methods that Django's Redis cache asks for; whole numbers stay bare for INCR."""

    def dumps(self, obj: Any) -> bytes | int:
        return obj if type(obj) is int else msgspec.json.encode(obj)

    def loads(self, data: bytes) -> Any:
        return msgspec.json.decode(data)
