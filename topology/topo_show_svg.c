/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures: the machine as boxes in rows, its links as lines coloured by load or by kind; the
 * matrix of paths as a heat map. Plain SVG 1.1: no scripts, no fonts beyond the generic one, all
 * integers.
 */
#include "topo_show.h"
#include "topo_error.h"
#include "topo_pci.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OPERATION "topology.picture"
#define MACHINES_MAX 4u
#define DEVICES_MAX 48u /* boxes in the row of devices */
#define BOX_WIDTH 88
#define BOX_HEIGHT 34
#define GAP_X 14
#define GAP_Y 58
#define FABRIC_GAP_Y 104 /* rows of switches, with many lines between */
#define MARGIN 24
#define TOP 64
#define HEAT_MAX 256u

/* ------------------------------------------------------------------------------------ layout */

typedef struct place {
    int32_t x, y; /* middle of the box */
    int32_t width;
    bool shown;
} place;

typedef struct layout {
    const topo_graph *graph;
    place *places; /* by node */
    const uint32_t *loads;
    topo_text *text;
    int32_t next_x; /* of the next device */
    int32_t depth_max;
    int32_t bottom;
    uint32_t devices;
} layout;

static bool is_leaf_device(topo_kind kind)
{
    return kind == TOPO_GPU || kind == TOPO_NIC || kind == TOPO_PCI_DEVICE;
}

static int32_t row_y(int32_t depth)
{
    return TOP + depth * GAP_Y;
}

static void box_at(layout *self, uint32_t node, int32_t x, int32_t y, int32_t width)
{
    self->places[node] = (place){x, y, width, true};
    self->bottom = y > self->bottom ? y : self->bottom;
}

/* Devices from left to right in the order of the tree; what is above them in the middle of its
 * own. */
static void subtree_place(layout *self, uint32_t node, int32_t depth)
{
    int32_t left = self->next_x;
    bool inner = false;
    self->depth_max = depth > self->depth_max ? depth : self->depth_max;
    for (uint32_t i = node + 1; i < topo_node_count(self->graph); i++) {
        const topo_node *child = topo_node_at(self->graph, i);
        if (child->parent == node && child->kind != TOPO_NVSWITCH && self->devices < DEVICES_MAX) {
            subtree_place(self, i, depth + 1);
            inner = true;
        }
    }
    if (!inner) {
        self->next_x += BOX_WIDTH + GAP_X;
        self->devices++;
    }
    int32_t right = self->next_x - GAP_X;
    int32_t span = right - left;
    int32_t width = is_leaf_device(topo_node_at(self->graph, node)->kind) ? BOX_WIDTH : 150;
    box_at(self, node, left + span / 2, row_y(depth), width < span ? width : span);
}

/* Devices stand in one row, whatever is above each, so that links between them are easy to
 * follow. */
static void devices_level(layout *self)
{
    for (uint32_t i = 0; i < topo_node_count(self->graph); i++) {
        if (self->places[i].shown && is_leaf_device(topo_node_at(self->graph, i)->kind)) {
            self->places[i].y = row_y(self->depth_max);
        }
    }
    self->bottom = row_y(self->depth_max);
}

/* A node below the devices that it links, in their middle; false when none of them is shown. */
static bool below_place(layout *self, uint32_t node, int32_t y)
{
    int64_t sum = 0;
    int32_t count = 0;
    for (uint32_t i = 0; i < topo_degree(self->graph, node); i++) {
        uint32_t far = topo_other(self->graph, topo_link_of(self->graph, node, i), node);
        if (self->places[far].shown) {
            sum += self->places[far].x;
            count++;
        }
    }
    if (count > 0) {
        box_at(self, node, (int32_t)(sum / count), y, 150);
    }
    return count > 0;
}

/* Boxes of one row that would cover each other are spread around the middle they share. */
static void row_spread(layout *self, topo_kind kind, topo_kind other, int32_t y)
{
    int32_t count = 0;
    int64_t sum = 0;
    bool crowded = false;
    int32_t end = INT32_MIN;
    for (uint32_t i = 0; i < topo_node_count(self->graph); i++) {
        topo_kind its = topo_node_at(self->graph, i)->kind;
        const place *box = &self->places[i];
        if (box->shown && (its == kind || its == other) && box->y == y) {
            crowded = crowded || box->x - box->width / 2 < end;
            end = box->x + box->width / 2;
            sum += box->x;
            count++;
        }
    }
    int32_t step = 150 + GAP_X;
    int32_t room = count > 0 ? (self->next_x - 2 * MARGIN) / count : step;
    step = room > step ? (room < 3 * step ? room : 3 * step) : step;
    int32_t x = count > 0 ? (int32_t)(sum / count) - step * (count - 1) / 2 : 0;
    x = x < MARGIN + 75 ? MARGIN + 75 : x;
    for (uint32_t i = 0; crowded && i < topo_node_count(self->graph); i++) {
        topo_kind its = topo_node_at(self->graph, i)->kind;
        place *box = &self->places[i];
        if (box->shown && (its == kind || its == other) && box->y == y) {
            box->x = x;
            x += step;
            self->next_x =
                x - step + 75 + GAP_X > self->next_x ? x - step + 75 + GAP_X : self->next_x;
        }
    }
}

static void fabric_place(layout *self)
{
    int32_t y = self->bottom + FABRIC_GAP_Y;
    bool nvlink = false;
    for (uint32_t i = 0; i < topo_kind_count(self->graph, TOPO_NVSWITCH); i++) {
        nvlink |= below_place(self, topo_kind_at(self->graph, TOPO_NVSWITCH, i), y);
    }
    row_spread(self, TOPO_NVSWITCH, TOPO_NVSWITCH, y);
    y += nvlink ? FABRIC_GAP_Y : 0;
    bool leaves = false;
    for (uint32_t i = topo_node_count(self->graph); i-- > 0;) {
        topo_kind kind = topo_node_at(self->graph, i)->kind;
        if (kind == TOPO_RAIL ||
            (kind == TOPO_NET_SWITCH && topo_node_at(self->graph, i)->parent != TOPO_NONE)) {
            leaves |= below_place(self, i, y);
        }
    }
    row_spread(self, TOPO_RAIL, TOPO_NET_SWITCH, y);
    int32_t spines = y + (leaves ? FABRIC_GAP_Y : 0);
    for (uint32_t i = 0; i < topo_kind_count(self->graph, TOPO_NET_SWITCH); i++) {
        uint32_t node = topo_kind_at(self->graph, TOPO_NET_SWITCH, i);
        if (!self->places[node].shown) {
            (void)below_place(self, node, spines);
        }
    }
    row_spread(self, TOPO_NET_SWITCH, TOPO_NET_SWITCH, spines);
}

static void all_place(layout *self)
{
    uint32_t machines = topo_kind_count(self->graph, TOPO_MACHINE);
    self->next_x = MARGIN;
    for (uint32_t i = 0; i < machines && i < MACHINES_MAX && self->devices < DEVICES_MAX; i++) {
        subtree_place(self, topo_kind_at(self->graph, TOPO_MACHINE, i), 0);
        self->next_x += GAP_X;
    }
    devices_level(self);
    fabric_place(self);
}

/* ------------------------------------------------------------------------------------ drawing */

static const char *fill_of(topo_kind kind)
{
    switch (kind) {
    case TOPO_GPU: return "#cfe8cf";
    case TOPO_NIC: return "#cfe0f5";
    case TOPO_NVSWITCH: return "#a9d3a9";
    case TOPO_NET_SWITCH:
    case TOPO_RAIL: return "#a8c6ea";
    case TOPO_NUMA:
    case TOPO_PACKAGE: return "#f3ead0";
    case TOPO_PCI_SWITCH: return "#e6dcf0";
    case TOPO_MACHINE:
    case TOPO_HOST_BRIDGE:
    case TOPO_PCI_DEVICE:
    case TOPO_KINDS: break;
    }
    return "#eeeeee";
}

static const char *colour_of_kind(topo_link_kind kind)
{
    switch (kind) {
    case TOPO_LINK_NVLINK:
    case TOPO_LINK_XGMI: return "#2e8b2e";
    case TOPO_LINK_C2C: return "#1f9e9e";
    case TOPO_LINK_PCI: return "#7a5ba8";
    case TOPO_LINK_SMP: return "#b08a2e";
    case TOPO_LINK_NET: return "#2b62ad";
    case TOPO_LINK_LOCAL:
    case TOPO_LINK_KINDS: break;
    }
    return "#999999";
}

/* Grey for idle, then from blue over yellow to red in even steps of load. */
static void colour_of_load(uint32_t load, char colour[8])
{
    uint32_t half = load <= 500 ? load : load - 500;
    uint32_t share = half * 255 / 500;
    uint32_t red = load <= 500 ? 40 + share * 200 / 255 : 240;
    uint32_t green = load <= 500 ? 110 + share * 90 / 255 : 200 - share * 170 / 255;
    uint32_t blue = load <= 500 ? 210 - share * 180 / 255 : 30;
    if (load == 0) {
        (void)snprintf(colour, 8, "#cccccc");
    } else {
        (void)snprintf(colour, 8, "#%02x%02x%02x", red & 0xff, green & 0xff, blue & 0xff);
    }
}

static void link_draw(layout *self, uint32_t id)
{
    const topo_link *link = topo_link_at(self->graph, id);
    const place *a = &self->places[link->a];
    const place *b = &self->places[link->b];
    char colour[8];
    int width = 2;
    if (!a->shown || !b->shown) {
        return;
    }
    if (self->loads != NULL) {
        uint32_t load = self->loads[id] < 1000 ? self->loads[id] : 1000;
        colour_of_load(load, colour);
        width = 1 + (int)(load / 200);
    } else {
        (void)snprintf(colour, sizeof(colour), "%s", colour_of_kind(link->kind));
    }
    const char *dash = link->health == TOPO_DOWN       ? " stroke-dasharray=\"2 6\""
                       : link->health == TOPO_DEGRADED ? " stroke-dasharray=\"8 4\""
                                                       : "";
    topo_text_add(self->text, "<path d=\"M%d %d", a->x, a->y);
    if (a->y == b->y) {
        int32_t bow = 26 + (a->x > b->x ? a->x - b->x : b->x - a->x) / 9;
        topo_text_add(self->text, "Q%d %d ", (a->x + b->x) / 2, a->y + BOX_HEIGHT / 2 + bow);
    } else {
        topo_text_add(self->text, "L");
    }
    topo_text_add(self->text, "%d %d\" fill=\"none\" stroke=\"%s\" stroke-width=\"%d\"%s/>\n", b->x,
                  b->y, colour, width, dash);
}

static void label_put(layout *self, uint32_t node, int32_t y, const char *label, int size)
{
    const place *box = &self->places[node];
    topo_text_add(self->text, "<text x=\"%d\" y=\"%d\" font-size=\"%d\" text-anchor=\"middle\">",
                  box->x, y, size);
    topo_text_add_xml(self->text, label);
    topo_text_add(self->text, "</text>\n");
}

static void box_draw(layout *self, uint32_t id)
{
    const topo_node *node = topo_node_at(self->graph, id);
    const place *box = &self->places[id];
    char label[48];
    char below[48] = "";
    if (node->kind == TOPO_GPU || node->kind == TOPO_NIC) {
        (void)snprintf(label, sizeof(label), "%s %" PRIu32, node->kind == TOPO_GPU ? "GPU" : "NIC",
                       node->index);
        (void)snprintf(below, sizeof(below), "%.14s", node->name);
    } else if (node->number != TOPO_BUS_NONE && node->kind != TOPO_HOST_BRIDGE) {
        (void)snprintf(label, sizeof(label), "%s %" PRIu64, topo_kind_text(node->kind),
                       node->number);
    } else if (node->kind == TOPO_NET_SWITCH || node->kind == TOPO_RAIL) {
        (void)snprintf(label, sizeof(label), "%.20s", node->name);
    } else {
        (void)snprintf(label, sizeof(label), "%s", topo_kind_text(node->kind));
        (void)snprintf(below, sizeof(below), "%.14s", node->kind == TOPO_MACHINE ? node->name : "");
    }
    topo_text_add(self->text,
                  "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"%s\" "
                  "stroke=\"#555555\"/>\n",
                  box->x - box->width / 2, box->y - BOX_HEIGHT / 2, box->width, BOX_HEIGHT,
                  fill_of(node->kind));
    label_put(self, id, below[0] != '\0' ? box->y - 2 : box->y + 4, label, 12);
    if (below[0] != '\0') {
        label_put(self, id, box->y + 12, below, 9);
    }
}

static void legend_draw(layout *self, int32_t y)
{
    int32_t x = MARGIN;
    if (self->loads != NULL) {
        for (uint32_t load = 0; load <= 1000; load += 100) {
            char colour[8];
            colour_of_load(load, colour);
            topo_text_add(self->text,
                          "<rect x=\"%d\" y=\"%d\" width=\"24\" height=\"12\" fill=\"%s\"/>\n", x,
                          y, colour);
            x += 24;
        }
        topo_text_add(self->text,
                      "<text x=\"%d\" y=\"%d\" font-size=\"11\">link load: idle (grey) to the "
                      "busiest (red)</text>\n",
                      x + 10, y + 10);
        return;
    }
    for (uint32_t i = TOPO_LINK_NVLINK; i < TOPO_LINK_KINDS; i++) {
        const char *name = topo_link_text((topo_link_kind)i);
        topo_text_add(self->text,
                      "<rect x=\"%d\" y=\"%d\" width=\"24\" height=\"4\" fill=\"%s\"/>"
                      "<text x=\"%d\" y=\"%d\" font-size=\"11\">%s</text>\n",
                      x, y + 4, colour_of_kind((topo_link_kind)i), x + 28, y + 10, name);
        x += 80;
    }
}

static void picture_begin(topo_text *text, int32_t width, int32_t height)
{
    topo_text_add(text,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n"
                  "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
                  width, height, width, height, width, height);
}

static void title_put(layout *self, const char *title)
{
    uint32_t machines = topo_kind_count(self->graph, TOPO_MACHINE);
    topo_text_add(self->text, "<text x=\"%d\" y=\"20\" font-size=\"14\" font-weight=\"bold\">",
                  MARGIN);
    topo_text_add_xml(self->text, title);
    topo_text_add(self->text, "</text>\n");
    if (machines > MACHINES_MAX || self->devices >= DEVICES_MAX) {
        topo_text_add(self->text,
                      "<text x=\"%d\" y=\"36\" font-size=\"11\">the first of %" PRIu32
                      " machines</text>\n",
                      MARGIN, machines);
    }
}

static void all_draw(layout *self, const char *title)
{
    all_place(self);
    int32_t width = self->next_x + MARGIN;
    int32_t height = self->bottom + BOX_HEIGHT + 60;
    picture_begin(self->text, width < 560 ? 560 : width, height);
    title_put(self, title);
    for (uint32_t i = 0; i < topo_link_count(self->graph) && !self->text->failed; i++) {
        link_draw(self, i);
    }
    for (uint32_t i = 0; i < topo_node_count(self->graph) && !self->text->failed; i++) {
        if (self->places[i].shown) {
            box_draw(self, i);
        }
    }
    legend_draw(self, height - 30);
    topo_text_add(self->text, "</svg>\n");
}

void topo_show_svg(const topo_graph *graph, const uint32_t *loads, const char *title,
                   topo_text *text)
{
    layout self = {.graph = graph, .loads = loads, .text = text};
    self.places = ist_alloc(topo_node_count(graph), sizeof(*self.places));
    if (self.places == NULL) {
        text->failed = true;
        return;
    }
    all_draw(&self, title);
    ist_free(self.places);
}

/* ------------------------------------------------------------------------------------ heat map */

static const char *const heat_colours[TOPO_PATH_TYPES] = {
    [TOPO_PATH_LOC] = "#ffffff", [TOPO_PATH_NVL] = "#1a7f37",  [TOPO_PATH_NVB] = "#6fbf73",
    [TOPO_PATH_C2C] = "#1f9e9e", [TOPO_PATH_PIX] = "#9fd356",  [TOPO_PATH_PXB] = "#d7e36a",
    [TOPO_PATH_PHB] = "#ffd95a", [TOPO_PATH_NODE] = "#ffb03b", [TOPO_PATH_SYS] = "#f2703d",
    [TOPO_PATH_NET] = "#4a78c2", [TOPO_PATH_NONE] = "#333333"};

static void heat_legend(const bool *used, int32_t x, topo_text *text)
{
    int32_t y = TOP;
    for (uint32_t i = 0; i < TOPO_PATH_TYPES; i++) {
        if (!used[i]) {
            continue;
        }
        topo_text_add(text,
                      "<rect x=\"%d\" y=\"%d\" width=\"16\" height=\"16\" fill=\"%s\" "
                      "stroke=\"#555555\"/><text x=\"%d\" y=\"%d\" font-size=\"12\">%s: ",
                      x, y, heat_colours[i], x + 22, y + 12, topo_path_text((topo_path_type)i));
        topo_text_add_xml(text, topo_path_meaning((topo_path_type)i));
        topo_text_add(text, "</text>\n");
        y += 22;
    }
}

void topo_show_heat(const topo_graph *graph, topo_text *text)
{
    uint32_t gpus = topo_gpu_count(graph);
    uint32_t count = gpus < HEAT_MAX ? gpus : HEAT_MAX;
    int32_t side = count <= 16 ? 30 : count <= 64 ? 14 : 6;
    bool used[TOPO_PATH_TYPES] = {false};
    int32_t area = (int32_t)count * side;
    int32_t height = area < 260 ? 260 : area;
    picture_begin(text, area + MARGIN * 2 + 400, TOP + height + MARGIN);
    topo_text_add(text,
                  "<text x=\"%d\" y=\"20\" font-size=\"14\" font-weight=\"bold\">paths between GPUs"
                  "</text>\n<text x=\"%d\" y=\"38\" font-size=\"11\">%" PRIu32 " of %" PRIu32
                  " GPUs, in rank order</text>\n",
                  MARGIN, MARGIN, count, gpus);
    for (uint32_t a = 0; a < count && !text->failed; a++) {
        for (uint32_t b = 0; b < count; b++) {
            topo_path_type type = topo_path_type_of(graph, topo_gpu(graph, a), topo_gpu(graph, b));
            used[type] = true;
            topo_text_add(text,
                          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n",
                          MARGIN + (int32_t)b * side, TOP + (int32_t)a * side, side - 1, side - 1,
                          heat_colours[type]);
        }
    }
    heat_legend(used, MARGIN + area + 24, text);
    topo_text_add(text, "</svg>\n");
}
