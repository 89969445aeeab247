from typing import final

@final
class Circle: ...
