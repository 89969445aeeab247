from typing import final

@final
class ReadyRing: ...
