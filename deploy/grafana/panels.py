"""Panels of the dashboards as data, and their translation for Grafana."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models

SOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
# A panel's height in units of Grafana's grid, which is 24 wide.
HEIGHTS = {"stat": 4, "curves": 8, "heat map": 9}


class Scale(Enum):
    LINEAR = "linear"
    LOG = "log"
    # Linear near 0, for values that may be negative.
    SYMMETRIC_LOG = "symlog"


@dataclass(frozen=True)
class Query:
    """An expression of PromQL, and its series' legend."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """A panel of a dashboard.

    Attributes:
        help: Meaning and advice, which Grafana shows at the title.
        unit: Grafana's name of the unit.
        kind: A key of HEIGHTS.
        width: Number of the grid's 24 columns.
        linear_below: Threshold below which Scale.SYMMETRIC_LOG is linear.
        stacked: Whether curves are parts of a whole.
    """

    title: str
    help: str
    queries: Sequence[Query]
    unit: str = "short"
    kind: str = "curves"
    width: int = 8
    scale: Scale = Scale.LINEAR
    linear_below: float = 1.0
    minimum: float | None = None
    maximum: float | None = None
    stacked: bool = False


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]


def scale_of(panel: Panel) -> common_builders.ScaleDistributionConfig:
    builder = common_builders.ScaleDistributionConfig()
    builder.type(common.ScaleDistribution(panel.scale.value))
    if panel.scale is not Scale.LINEAR:
        builder.log(10)
    if panel.scale is Scale.SYMMETRIC_LOG:
        builder.linear_threshold(panel.linear_below)
    return builder


def curves(panel: Panel) -> timeseries.Panel:
    builder = (
        timeseries.Panel()
        .line_width(2)
        .fill_opacity(60 if panel.stacked else 0)
        .show_points(common.VisibilityMode.AUTO)
        # Batches arrive minutes apart; the time between them is not a gap.
        .span_nulls(True)
        .scale_distribution(scale_of(panel))
        .legend(
            common_builders.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    )
    if panel.stacked:
        builder.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    return builder


def number(panel: Panel) -> stat.Panel:
    return (
        stat.Panel()
        .graph_mode(common.BigValueGraphMode.NONE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .text_mode(
            common.BigValueTextMode.NAME if panel.unit == "none" else common.BigValueTextMode.AUTO
        )
    )


def heat_map(panel: Panel) -> heatmap.Panel:
    return (
        heatmap.Panel()
        # The series are a histogram's buckets already.
        .calculate(False)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(heatmap_models.HeatmapColorMode.SCHEME)
            .scheme("Viridis")
            .scale(heatmap_models.HeatmapColorScale.EXPONENTIAL)
            .exponent(0.5)
            .steps(64)
        )
        .y_axis(heatmap.YAxisConfig().unit(panel.unit))
        .show_legend()
    )


def target(query: Query, panel: Panel, index: int) -> prometheus.Dataquery:
    builder = (
        prometheus.Dataquery()
        .datasource(SOURCE)
        .expr(query.expression)
        .legend_format(query.legend or "__auto")
        .ref_id(chr(ord("A") + index))
    )
    if panel.kind == "heat map":
        builder.format(prometheus_models.PromQueryFormat.HEATMAP)
    return builder.instant() if panel.kind == "stat" else builder.range()


def build(panel: Panel) -> Any:
    builder: Any = {"curves": curves, "stat": number, "heat map": heat_map}[panel.kind](panel)
    builder.title(panel.title).description(panel.help).datasource(SOURCE)
    builder.height(HEIGHTS[panel.kind]).span(panel.width)
    if panel.kind != "heat map":
        builder.unit(panel.unit)
        if panel.minimum is not None:
            builder.min(panel.minimum)
        if panel.maximum is not None:
            builder.max(panel.maximum)
    for index, query in enumerate(panel.queries):
        builder.with_target(target(query, panel, index))
    return builder


def variable(name: str, label: str, query: str) -> dashboard_builders.QueryVariable:
    """Returns a selection of several values of a label, initially all."""
    return (
        dashboard_builders.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        # Includes the empty value: requests without the label run.
        .all_value(".*")
        .current(dashboard.VariableOption(text="All", value="$__all", selected=True))
    )


def page(
    uid: str,
    title: str,
    help_text: str,
    variables: Sequence[Any],
    rows: Sequence[Row],
) -> dashboard.Dashboard:
    builder = (
        dashboard_builders.Dashboard(title)
        .uid(uid)
        .description(help_text)
        .tags(["counterweight"])
        .time("now-6h", "now")
        .refresh("30s")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard_builders.DashboardLink("Counterweight")
            .type(dashboard.DashboardLinkType.DASHBOARDS)
            .tags(["counterweight"])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(
            dashboard_builders.DatasourceVariable("datasource")
            .label("Data source")
            .type("prometheus")
        )
    )
    for each in variables:
        builder.with_variable(each)
    number_of_panels = 0
    for row in rows:
        number_of_panels += 1
        builder.with_row(dashboard_builders.Row(row.title).id(number_of_panels))
        for panel in row.panels:
            number_of_panels += 1
            builder.with_panel(build(panel).id(number_of_panels))
    return builder.build()
