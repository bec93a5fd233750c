"""Slugs as a table of names."""

import keyword
import re

import pytest

from awm.synth.slug import MAX_LENGTH, slugify, unique_slugs

SLUGS = [
    ("Online Bookstore", "online_bookstore"),
    ("  Hotel -- Booking!  ", "hotel_booking"),
    ("Café Müller", "cafe_muller"),
    ("Straße & Søn, Łódź", "strasse_son_lodz"),
    ("Encyclopædia Œuvre Þór", "encyclopaedia_oeuvre_thor"),
    ("İstanbul", "istanbul"),
    ("ﬁtness ＧＹＭ", "fitness_gym"),
    ("Vet's Office", "vets_office"),
    ("Vet\u2019s Office", "vets_office"),
    ("日本", "scenario_cf2abf0c"),
    ("Аптека", None),
    ("日本 store", "store"),
    ("🚲", None),
    ("🚲 rental", "rental"),
    ("", None),
    ("   ", None),
    ("..", None),
    ("../../etc/passwd", "etc_passwd"),
    ("a/b\\c:d", "a_b_c_d"),
    ("line\nbreak\x00null", "line_break_null"),
    ("24/7 gym", "scenario_24_7_gym"),
    ("٣ gyms", "gyms"),
    ("class", "scenario_class"),
    ("None", "scenario_none"),
    ("match", "scenario_match"),
    ("CON", "scenario_con"),
    ("com1", "scenario_com1"),
    ("console", "console"),
    ("snake_case__name", "snake_case_name"),
    ("x" * 120, "x" * 60),
    ("\ud800", None),
]


@pytest.mark.parametrize(("name", "expected"), SLUGS)
def test_slug(name, expected):
    slug = slugify(name)
    assert expected is None or slug == expected
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", slug)
    assert len(slug) <= MAX_LENGTH
    assert not keyword.iskeyword(slug)
    assert slugify(slug) == slug


def test_names_without_ascii_stay_apart():
    assert len({slugify(name) for name in ["日本", "中国", "Аптека", "🚲", "🚗", "", "..", "  "]}) == 8


def test_both_unicode_forms_of_a_name_are_one_name():
    assert slugify("が") == slugify("か\u3099")


def test_a_long_name_is_cut_between_words():
    name = "municipal waste collection and recycling appointment scheduling portal of the north"
    slug = slugify(name)
    assert slug == "municipal_waste_collection_and_recycling_appointment"
    assert slugify("a " + "x" * 118) == "a_" + "x" * 58


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], []),
        (["Shop", "shop", "SHOP!"], ["shop", "shop_2", "shop_3"]),
        (["Shop 2", "Shop", "Shop"], ["shop_2", "shop", "shop_3"]),
        (["Shop", "Shop", "Shop 2"], ["shop", "shop_2", "shop_2_2"]),
        (["x" * 120, "x" * 119], ["x" * 60, "x" * 58 + "_2"]),
        (["日本", "日本"], ["scenario_cf2abf0c", "scenario_cf2abf0c_2"]),
    ],
)
def test_unique_slugs(names, expected):
    assert unique_slugs(names) == expected


def test_added_names_change_no_slug():
    names = ["Shop", "shop", "Shop 2", "Shop_2", "shop 3", *["x" * 90] * 12]
    slugs = unique_slugs(names)
    assert len(set(slugs)) == len(names)
    assert all(len(slug) <= MAX_LENGTH for slug in slugs)
    assert [unique_slugs(names[:count]) == slugs[:count] for count in range(len(names))] == [True] * len(names)
