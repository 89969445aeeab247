from nsqfast._ext.broker.consumer import Client

from nsqfast.streams.tls import TlsStream

class Host(Client):
    remote_address: str
    remote_host: str
    connect_ts: int
    secure: TlsStream | None
    tls: bool
    common_name: str
