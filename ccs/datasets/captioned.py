"""Sets of clips, and of pictures, with captions."""

from __future__ import annotations

from ccs.datasets.source import CARD, Source

_STUDY = "First caption only; frames with OpenAI's mean and deviation whatever the model; their mean is not "
_STUDY += "normalized."

MSRVTT = Source(
    name="msrvtt",
    title="MSR-VTT, 1k-A",
    kind="videos",
    hub="friedrichor/MSR-VTT",
    config="test_1k",
    split="test",
    captions=("caption",),
    annotations="msrvtt_test_1k.json",
    frames=12,
    rows=1_000,
    licence="Microsoft's terms: research",
    study=_STUDY,
    verified=f"{CARD} (annotations); rows {{video_id, video, caption}} from code that reads them; "
    "the archive of videos is found by its ending, its name was not verified",
)
MSVD = Source(
    name="msvd",
    title="MSVD",
    kind="videos",
    hub="friedrichor/MSVD",
    split="test",
    captions=("caption",),
    annotations="msvd_test.json",
    frames=12,
    rows=670,
    licence="not stated",
    study=f"{_STUDY} There are about 40 captions a clip.",
    verified=f"{CARD} (annotations); caption is a list, from code that reads it; archive found by ending",
)
DIDEMO = Source(
    name="didemo",
    title="DiDeMo",
    kind="videos",
    hub="friedrichor/DiDeMo",
    split="test",
    captions=("caption",),
    annotations="didemo_test.json",
    frames=32,
    rows=1_003,
    licence="those of the videos of YFCC100M (Creative Commons, differing)",
    study=_STUDY,
    verified=f"{CARD} (annotations); archives found by their ending, split ones are joined",
)
FLICKR8K = Source(
    name="flickr8k",
    title="Flickr8k",
    kind="captions",
    hub="jxie/flickr8k",
    split="test",
    captions=("caption_0", "caption_1", "caption_2", "caption_3", "caption_4"),
    rows=1_000,
    licence="Flickr8k's terms: research, no commerce",
    study="Not in the study; pictures stand in for clips of one frame.",
    verified=CARD,
)

CAPTIONED = (MSRVTT, MSVD, DIDEMO, FLICKR8K)
