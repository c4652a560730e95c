"""The page about policies has a valid example, correct messages, and every field."""

import re
from pathlib import Path

from extender.policy.file import Allow, Default, read
from extender.policy.rules import judged
from tests.builders import PREFIX, TRANSLATION, pod

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "policy.md").read_text()


def test_example_of_the_page_is_a_valid_policy(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "policy.yaml"
    file.write_text(example)
    policy = read(file)
    wrong = {PREFIX + "user-id": "2003", PREFIX + "priority": "5000"}
    told = judged(pod(namespace="team-a", annotations=wrong), policy, TRANSLATION).request.problems
    assert len(told) == 2
    for words in told:
        assert f"    {words}\n" in PAGE
    adopted_pod = judged(pod(namespace="elsewhere"), policy, TRANSLATION).request.job
    assert (adopted_pod.user_id, adopted_pod.account, adopted_pod.partition) == (3000, "guests", "debug")


def test_page_explains_each_field() -> None:
    for model in (Default, Allow):
        for field in model.model_fields.values():
            assert f"`{field.alias}`" in PAGE
