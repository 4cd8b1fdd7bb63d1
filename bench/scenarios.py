"""What is measured, by the names that results and tables have for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of load: so many connections, each asking again as soon as it is answered, lists of so many texts."""

    name: str
    connections: int
    size: int = 1
    texts: str = "short"


ONE = Scenario("1 connection", 1)
SINGLE = Scenario("16 connections", 16)
MANY = Scenario("64 connections", 64)
LISTS = Scenario("lists of 32, 4 connections", 4, size=32)
MIXED = Scenario("mixed lengths, 16 connections", 16, texts="mixed")
SCENARIOS = (ONE, SINGLE, MANY, LISTS, MIXED)
CONNECTIONS = tuple(Scenario(f"{count} connections", count) for count in (2, 4, 8, 32, 128))
SIZES = tuple(Scenario(f"lists of {size}, 4 connections", 4, size=size) for size in (1, 8, 128, 256))

SERVICE, ONE_WORKER, HTTP, NO_RUN = "service", "service, 1 worker", "HTTP alone", "all but the run"
CLASSIFY, EMBED = "/classify", "/embed?pool=mean"
BASE64 = f"{EMBED}&encoding=base64"

ENGINE, MEAN, TOKENIZER = "engine", "engine, mean of all tokens", "tokenizer"
SHARED = "engine, two cores a text"
PACKED, BOTH = "engine, texts sharing runs", "tokenizer + engine, texts sharing runs"
STOCK, PRODUCT = "stock int8", "large int8 product"
LENGTHS = (8, 16, 25, 32, 64, 128, 256, 512)
THREAD, THREADS = "1 thread", "2 threads"
