import base64
import itertools
import struct
import zlib

import numpy as np
import pytest

from doublefeature.posterior.arranging import arrange, shortest_tour
from doublefeature.report.markup import Html, count, counted, decimal, label, percent, signed, sized, tag
from doublefeature.report.picture import COLOURS, block_picture, write_png
from doublefeature.report.svg import Axis, Dot, Line, axis_around, bar_chart, calibration_chart, line_chart, strip


def read_png(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    place, chunks = 8, {}
    while place < len(data):
        size = struct.unpack(">I", data[place : place + 4])[0]
        name, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        assert struct.unpack(">I", data[place + 8 + size : place + 12 + size])[0] == zlib.crc32(name + body)
        chunks[name] = body
        place += 12 + size
    width, height, depth, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, kind) == (8, 3)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    return lines[:, 1:], chunks[b"PLTE"], chunks[b"tRNS"]


def borders(members, order, weights):
    """Return the total length of borders between rows in this order, empty rows on both sides."""
    rows = np.vstack([np.zeros_like(members[:1]), members[order], np.zeros_like(members[:1])])
    return int(((rows[1:] != rows[:-1]) @ weights).sum())


class TestPicture:
    def test_png_holds_the_pixels(self, rng):
        pixels = rng.integers(0, 4, (7, 5)).astype(np.uint8)
        found, palette, alpha = read_png(write_png(pixels, COLOURS[:3]))
        assert np.array_equal(found, pixels)
        assert palette[3:6].hex() == COLOURS[0]
        assert alpha == b"\x00"

    def test_blocks_are_where_users_meet_items(self):
        users, items = np.zeros((6, 2), bool), np.zeros((5, 2), bool)
        users[:4, 0] = users[2:, 1] = items[:3, 0] = items[2:, 1] = True
        picture = block_picture(users, items)
        pixels, _, _ = read_png(picture.png)
        assert sorted(picture.users) == list(range(6))
        assert sorted(picture.items) == list(range(5))
        tall, wide = pixels.shape[0] // 6, pixels.shape[1] // 5
        for row, user in enumerate(picture.users):
            for column, item in enumerate(picture.items):
                cell = pixels[row * tall : (row + 1) * tall - 1, column * wide : (column + 1) * wide - 1]
                expected = {k + 1 for k in range(2) if users[user, k] and items[item, k]}
                assert set(np.unique(cell)) == (expected or {0})

    def test_large_data_are_drawn_in_part(self, rng):
        users, items = rng.random((5000, 6)) < 0.3, rng.random((900, 6)) < 0.2
        picture = block_picture(users, items)
        assert picture.users.size <= 400
        assert picture.items.size <= 400
        assert len(picture.data_uri()) < 400_000
        assert base64.b64decode(picture.data_uri().split(",")[1]) == picture.png
        share = users[picture.users].mean(axis=0)
        assert np.abs(share - users.mean(axis=0)).max() < 0.02

    def test_one_user_and_one_item(self):
        pixels, _, _ = read_png(block_picture(np.ones((1, 1), bool), np.ones((1, 1), bool)).png)
        assert set(np.unique(pixels)) == {0, 1}

    def test_the_order_keeps_features_in_few_pieces(self, rng):
        members = rng.random((200, 4)) < 0.4
        weights = np.array([5, 3, 2, 1])
        order = arrange(members, weights)
        assert sorted(order) == list(range(200))
        mine = borders(members, order, weights)
        assert mine <= borders(members, np.lexsort(members.T[::-1]), weights)
        assert mine < borders(members, np.arange(200), weights) / 5
        empty = ~members[order].any(axis=1)
        assert empty[-empty.sum() :].all()

    def test_tours_are_near_the_shortest(self, rng):
        for _ in range(20):
            kinds = np.vstack([np.zeros(4), rng.random((6, 4)) < 0.5])
            distances = np.abs(kinds[:, None] - kinds).sum(axis=2)

            def length(tour, distances=distances):
                return sum(distances[a, b] for a, b in zip(tour, [*tour[1:], tour[0]], strict=True))

            best = min(length([0, *rest]) for rest in itertools.permutations(range(1, 7)))
            tour = shortest_tour(distances).tolist()
            assert tour[0] == 0
            assert sorted(tour) == list(range(7))
            assert length(tour) <= best + 2


class TestCharts:
    def test_axes_place_and_label(self):
        axis = Axis(0.0, 4.0)
        assert [axis.place(value) for value in (-1, 0, 1, 4, 9)] == [0, 0, 25, 100, 100]
        assert axis.labels() == [(0, "0"), (1, "1"), (2, "2"), (3, "3"), (4, "4")]
        assert [text for _, text in Axis(-0.3, 0.32).labels()] == ["−0.2", "0.0", "0.2"]
        assert [text for _, text in Axis(0, 1, share=True).labels()] == [f"{k}\u00a0%" for k in (0, 25, 50, 75, 100)]
        assert "−70,000" in [text for _, text in Axis(-71_000, -62_000).labels()]

    @pytest.mark.parametrize("values", [[], [3.0], [2.0, 2.0], [np.nan, 1.0], [-np.inf, 4.0], [1e9, 1e9 + 1e-3]])
    def test_an_axis_is_never_empty(self, values):
        axis = axis_around(values)
        assert axis.low < axis.high
        assert axis.labels()

    def test_values_that_are_not_numbers_are_left_out(self):
        lines = [Line("a", np.array([1.0, -np.inf, np.nan, 2.0]))]
        chart = line_chart("x", "t", "d", lines, across=Axis(1, 4), up=Axis(0, 3), shaded=2.0)
        assert "nan" not in chart
        assert "inf" not in chart
        assert 'points="0,667 1000,333"' in chart

    def test_the_warm_up_is_shaded(self):
        lines = [Line("a", np.arange(5.0))]
        assert 'width="50.00%"' in line_chart("x", "t", "d", lines, across=Axis(1, 5), up=Axis(0, 5), shaded=3.0)
        assert "shade" not in line_chart("x", "t", "d", lines, across=Axis(1, 5), up=Axis(0, 5))

    def test_bars_are_as_tall_as_their_values(self):
        chart = bar_chart("x", "t", "d", ["a", "b"], [0.25, 0.5])
        heights = [float(part.split('"')[0]) for part in chart.split(' height="')[2:4]]
        assert heights[1] == pytest.approx(2 * heights[0], rel=0.01)

    def test_points_are_where_the_numbers_are(self):
        chart = calibration_chart("x", "t", "d", [(0.25, 0.5, 0.4, 0.75)])
        assert '<circle class="point" cx="25.00%" cy="160" r="5">' in chart
        assert 'y1="192" y2="80"' in chart

    def test_strips_mark_what_was_given(self):
        shown = strip("told", Axis(0, 10), span=(2, 4), middle=3, dots=[Dot(5, "kept"), Dot(6, "seen")])
        for place in ('x1="20.00%" x2="40.00%"', 'x="50.00%"', 'cx="60.00%"', "<title>told</title>"):
            assert place in shown


class TestMarkup:
    def test_whatever_is_not_html_is_escaped(self):
        assert tag("p", "<b>", Html("<i></i>"), id='"x') == '<p id="&quot;x">&lt;b&gt;<i></i></p>'
        assert tag("a", None, hidden=True, class_=None, data_x=1.50) == '<a hidden data-x="1.5"></a>'
        assert tag("p", "\x00\ud800") == "<p>\ufffd\ufffd</p>"
        assert tag("p", "\x00\ud800").encode()

    def test_long_labels_are_cut(self):
        assert len(label("x" * 10_000)) < 200
        assert label("x" * 160) == f"<bdi>{'x' * 160}</bdi>"

    def test_numbers_in_words(self):
        assert count(6040) == "6,040"
        assert counted(1, "item") == "1\u00a0item"
        assert counted(2, "item") == "2\u00a0items"
        assert [decimal(value) for value in (-0.001, -1.5, float("nan"), 2)] == ["0.00", "−1.50", "–", "2.00"]
        assert [signed(value) for value in (0.5, -0.5, 0.001)] == ["+0.50", "−0.50", "0.00"]
        assert [sized(value) for value in (-65060.2, 214.8, 12.83, 0.682)] == ["−65,060", "214.8", "12.83", "0.682"]
        texts = [percent(value).replace("\u00a0", " ") for value in (0, 0.001, 0.93, 0.995, 0.9999, 1)]
        assert texts == ["0 %", "< 1 %", "93 %", "> 99 %", "> 99 %", "100 %"]
