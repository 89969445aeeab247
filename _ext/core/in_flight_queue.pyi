from typing import final

@final
class InFlightQueue: ...
