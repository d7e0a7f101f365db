"""A sink that is no cluster has generations in the state alone."""

from headrace.sinks.opensearch import GenerationState, IndexOptions
from headrace.sinks.plain import PlainGenerations


def test_each_generation_has_a_name_and_an_identity_of_its_own() -> None:
    known = GenerationState("users", "users_ab_1", "u1", "ab")
    generations = PlainGenerations([known, GenerationState("orders", "orders_ab_1", "u2", "ab")])
    assert [one.uuid for one in generations.existing("users")] == ["u1"]
    made = [generations.create("users", "ab", {}) for _ in range(2)]
    assert len({one.index for one in made} | {"users_ab_1"}) == 3
    assert [one.index for one in generations.existing("users")] == [
        "users_ab_1",
        *(one.index for one in made),
    ]
    generations.finish(made[0], IndexOptions())
    generations.publish(made[0])
    assert generations.published("users") is None
    generations.drop(made[0])
    assert made[0] not in generations.existing("users")
