from headrace.state import StateKey


def test_a_secondary_sink_has_a_state_of_its_own_beside_the_pipelines() -> None:
    pipeline = StateKey("shop", "x_")
    sink = pipeline.of_sink("other")
    assert (pipeline.id, sink.id) == ("shop", "shop/other")
    assert pipeline.meta_index == sink.meta_index == "x_headrace_meta"
    assert sink.of_pipeline() == pipeline


def test_messages_say_which_sink_of_which_slot() -> None:
    assert str(StateKey("shop", "x_")) == "the slot 'shop'"
    assert str(StateKey("shop", "x_", "other")) == "the sink 'other' of the slot 'shop'"
