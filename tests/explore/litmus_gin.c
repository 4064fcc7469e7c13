/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory model of GPU-initiated network: puts, signals, counters, flushes, and how they meet
 * words and barriers. Method: as litmus_lsa.c.
 */
#include "litmus.h"

#define RACE IST_FINDING_RACE

/* A put and the signal that covers it. */
static const litmus_case litmus_signals[] = {
    {"put with its strong signal", 2, {"0.0: B0.b=1; P0>1.a<b:s0", "1.0: T0.0>1; C1.a"}, "1", 0},
    {"put without a signal", 2, {"0.0: B0.b=1; P0>1.a<b", "1.0: C1.a"}, "0 1", RACE},
    {"put with its weak signal", 2, {"0.0: B0.b=1; P0>1.a<b:w0", "1.0: T0.0>1; C1.a"}, "1", 0},
    {"signal read, acquire", 2, {"0.0: B0.b=1; P0>1.a<b:s0", "1.0: Q0.0@a; ?1; C1.a"}, "0 11", 0},
    {"signal read, relaxed", 2, {"0.0: B0.b=1; P0>1.a<b:s0", "1.0: Q0.0; ?1; C1.a"}, "0 11", RACE},
    {"signal read relaxed, then a fence",
     2,
     {"0.0: B0.b=1; P0>1.a<b:s0", "1.0: Q0.0; ?1; F@as; C1.a"},
     "0 11",
     0},
    {"earlier put, strong signal alone",
     2,
     {"0.0: B0.b=1; P0>1.a<b; G0>1:s0", "1.0: T0.0>1; C1.a"},
     "1",
     0},
    {"earlier put, weak signal alone",
     2,
     {"0.0: B0.b=1; P0>1.a<b; G0>1:w0", "1.0: T0.0>1; C1.a"},
     "0 1",
     RACE},
    {"earlier put, strong signal of the next",
     2,
     {"0.0: B0.b=1; P0>1.a<b; P0>1.c<b:s0", "1.0: T0.0>1; C1.a; C1.c"},
     "11",
     0},
    {"earlier put, weak signal of the next",
     2,
     {"0.0: B0.b=1; P0>1.a<b; P0>1.c<b:w0", "1.0: T0.0>1; C1.a; C1.c"},
     "01 11",
     RACE},
    {"signal on the put's context",
     2,
     {"0.0: B0.b=1; P1>1.a<b; G1>1:s0", "1.0: T1.0>1; C1.a"},
     "1",
     0},
    {"signal on another context",
     2,
     {"0.0: B0.b=1; P0>1.a<b; G1>1:s0", "1.0: T1.0>1; C1.a"},
     "0 1",
     RACE},
    {"signal to the put's peer, passed on",
     3,
     {"0.0: B0.b=1; P0>1.a<b:s0", "1.0: T0.0>1; W2.c=1@rs", "2.0: E2.c>1@s; C1.a"},
     "1",
     0},
    {"signal to another peer",
     3,
     {"0.0: B0.b=1; P0>1.a<b; G0>2:s0", "2.0: T0.0>1; C1.a"},
     "0 1",
     RACE},
    {"two senders, both signals",
     3,
     {"0.0: B0.b=1; P0>2.a<b:s0", "1.0: B1.b=1; P0>2.c<b:s0", "2.0: T0.0>2; C2.a; C2.c"},
     "11",
     0},
    {"two senders, one of the signals",
     3,
     {"0.0: B0.b=1; P0>2.a<b:s0", "1.0: B1.b=1; P0>2.c<b:s0", "2.0: T0.0>1; C2.a; C2.c"},
     "01 10 11",
     RACE},
    {"put to itself, signal", 1, {"0.0: B0.b=1; P0>0.a<b:s0; T0.0>1; C0.a"}, "1", 0},
    {"put to itself, flush", 1, {"0.0: B0.b=1; P0>0.a<b; L0; C0.a"}, "0 1", RACE},
};

/* Values: words that travel. */
static const litmus_case litmus_values[] = {
    {"value with its signal", 2, {"0.0: V0>1.a=5:w0", "1.0: T0.0>1; R1.a"}, "5", 0},
    {"value without a signal", 2, {"0.0: V0>1.a=5", "1.0: R1.a"}, "0 5", 0},
    {"value, strong signal after it", 2, {"0.0: V0>1.a=5; G0>1:s0", "1.0: T0.0>1; R1.a"}, "5", 0},
    {"value, weak signal after it", 2, {"0.0: V0>1.a=5; G0>1:w0", "1.0: T0.0>1; R1.a"}, "0 5", 0},
    {"put, then a value with a strong signal",
     2,
     {"0.0: B0.b=1; P0>1.a<b; V0>1.c=5:s0", "1.0: T0.0>1; C1.a"},
     "1",
     0},
    {"put, then a value that is polled",
     2,
     {"0.0: B0.b=1; P0>1.a<b; V0>1.c=1", "1.0: E1.c>1@s; C1.a"},
     "0 1",
     RACE},
};

/* Counters and flushes tell about sources, never about targets. */
static const litmus_case litmus_completion[] = {
    {"source used again after its counter",
     2,
     {"0.0: B0.b=1; P0>1.a<b:s0#0; K0.0>1; B0.b=2", "1.0: T0.0>1; C1.a"},
     "1",
     0},
    {"source used again at once",
     2,
     {"0.0: B0.b=1; P0>1.a<b:s0; Y; B0.b=2", "1.0: T0.0>1; C1.a"},
     "2",
     IST_FINDING_REUSED},
    {"source used again after a flush",
     2,
     {"0.0: B0.b=1; P0>1.a<b:s0; L0; B0.b=2", "1.0: T0.0>1; C1.a"},
     "1",
     0},
    {"flush of another context",
     2,
     {"0.0: B0.b=1; P0>1.a<b:s0; L1; B0.b=2", "1.0: T0.0>1; C1.a"},
     "1 2",
     IST_FINDING_REUSED},
    {"signal for arrival", 2, {"0.0: B0.b=1; P0>1.a<b:s0", "1.0: T0.0>1; C1.a"}, "1", 0},
    {"counter taken for arrival",
     2,
     {"0.0: B0.b=1; P0>1.a<b#0; K0.0>1; W1.c=1@rs", "1.0: E1.c>1@s; C1.a"},
     "0 1",
     RACE},
    {"flush taken for arrival",
     2,
     {"0.0: B0.b=1; P0>1.a<b; L0; W1.c=1@rs", "1.0: E1.c>1@s; C1.a"},
     "0 1",
     RACE},
    {"two puts to one place, in turn",
     2,
     {"0.0: B0.b=1; B0.c=2; P0>1.a<b:s0; E0.d>1@s; P0>1.a<c:s1",
      "1.0: T0.0>1; W0.d=1@rs; T0.1>1; C1.a"},
     "2",
     0},
    {"two puts to one place, at once",
     2,
     {"0.0: B0.b=1; B0.c=2; P0>1.a<b; P0>1.a<c:s0", "1.0: T0.0>1; C1.a"},
     "1 2",
     RACE},
};

/* Network and load/store together. */
static const litmus_case litmus_mixed[] = {
    {"put, its signal, then words",
     3,
     {"0.0: B0.b=1; P0>1.a<b:s0", "1.0: T0.0>1; W2.c=1@rs", "2.0: E2.c>1@s; R1.a"},
     "1",
     0},
    {"put, then a released word",
     2,
     {"0.0: B0.b=1; P0>1.a<b; W1.c=1@rs", "1.0: E1.c>1@s; C1.a"},
     "0 1",
     RACE},
    {"put with a signal, then a barrier",
     2,
     {"0.0: B0.b=1; P0>1.a<b:s0; Z0", "1.0: T0.0>1; Z0; C1.a"},
     "1",
     0},
    {"put, then an LSA barrier", 2, {"0.0: B0.b=1; P0>1.a<b; Z0", "1.0: Z0; C1.a"}, "0 1", RACE},
    {"another block's row, released before the put",
     2,
     {"0.0: B0.b=1; Y; W0.c=1@rd", "0.1: E0.c>1@d; P0>1.a<b:s0", "1.0: T0.0>1; C1.a"},
     "1",
     0},
    {"another block's row, relaxed before the put",
     2,
     {"0.0: B0.b=1; Y; W0.c=1@-d", "0.1: E0.c>1@d; P0>1.a<b:s0", "1.0: T0.0>1; C1.a"},
     "1",
     RACE},
    {"target read, then put over after the answer",
     2,
     {"0.0: B0.b=1; P0>1.a<b:s0; E0.c>1@s; B0.d=2; P0>1.a<d:s1", "1.0: T0.0>1; C1.a; Y; W0.c=1@rs"},
     "1",
     0},
    {"target read, put over without waiting",
     2,
     {"0.0: B0.b=1; B0.d=2; P0>1.a<b:s0; P0>1.a<d:s1", "1.0: T0.0>1; C1.a"},
     "1 2",
     RACE},
};

#define TABLE_TEST(name)                                                                           \
    static void name##_test(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        assert_int_equal(litmus_check(litmus_##name, LITMUS_COUNT(litmus_##name)), 0);             \
    }
TABLE_TEST(signals)
TABLE_TEST(values)
TABLE_TEST(completion)
TABLE_TEST(mixed)

int main(int argc, char **argv)
{
    ist_test_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_test),
        cmocka_unit_test(values_test),
        cmocka_unit_test(completion_test),
        cmocka_unit_test(mixed_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
