/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: under a launcher a process learns its place, other jobs do not meet, and contradictions are
 * errors that name the variable.
 * Method: set the variables by hand and look at what the fake is given.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "front_fixture.h"

static const char *const variables[] = {
    "IST_LAUNCH", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",    "PMIX_RANK", "PMI_RANK",
    "PMI_SIZE",   "PMIX_NAMESPACE",       "OMPI_MCA_ess_base_jobid", "PMI_JOBID"};

static int set_up(void **state)
{
    front_set_up(state);
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); ++i) {
        unsetenv(variables[i]);
    }
    return 0;
}

static ist_status do_nothing(ist_world *world, void *arg)
{
    (void)world, (void)arg;
    return IST_OK;
}

static void place(const char *rank, const char *size, const char *job)
{
    setenv("OMPI_COMM_WORLD_RANK", rank, 1);
    setenv("OMPI_COMM_WORLD_SIZE", size, 1);
    setenv("PMIX_NAMESPACE", job, 1);
}

static void alone(void **state)
{
    (void)state;
    assert_int_equal(front_run(2, do_nothing, NULL), IST_OK);
    assert_false(fake.had_process);
    place("0", "1", "job.1");
    assert_int_equal(front_run(2, do_nothing, NULL), IST_OK);
    assert_false(fake.had_process);
}

static void under_a_launcher(void **state)
{
    (void)state;
    place("3", "4", "job.1");
    assert_int_equal(front_run(4, do_nothing, NULL), IST_OK);
    assert_true(fake.had_process);
    ist_backend_process first = fake.process;
    assert_int_equal(first.rank, 3);
    assert_int_equal(first.rank_count, 4);
    assert_int_equal(front_run(0, do_nothing, NULL), IST_OK);
    assert_int_equal(fake.process.job_key, first.job_key);
    assert_int_equal(fake.process.run, first.run + 1);
    place("3", "4", "job.2");
    assert_int_equal(front_run(0, do_nothing, NULL), IST_OK);
    assert_int_not_equal(fake.process.job_key, first.job_key);
    setenv("IST_LAUNCH", "none", 1);
    assert_int_equal(front_run(2, do_nothing, NULL), IST_OK);
    assert_false(fake.had_process);
}

static void by_pmi(void **state)
{
    (void)state;
    setenv("PMI_RANK", "1", 1);
    setenv("PMI_SIZE", "2", 1);
    assert_int_equal(front_run(0, do_nothing, NULL), IST_OK);
    assert_true(fake.had_process);
    assert_int_equal(fake.process.rank, 1);
}

static void contradictions(void **state)
{
    (void)state;
    place("3", "4", "job.1");
    assert_int_equal(front_run(8, do_nothing, NULL), IST_ERR_ARGUMENT);
    assert_string_equal(front_error().object, "desc.rank_count");
    assert_int_equal(front_error().expected, 4);
    assert_int_equal(front_error().observed, 8);
    place("4", "4", "job.1");
    assert_int_equal(front_run(0, do_nothing, NULL), IST_ERR_RANGE);
    place("three", "4", "job.1");
    assert_int_equal(front_run(0, do_nothing, NULL), IST_ERR_PARSE);
    assert_string_equal(front_error().object, "OMPI_COMM_WORLD_RANK");
    place("0", "-1", "job.1");
    assert_int_equal(front_run(0, do_nothing, NULL), IST_ERR_PARSE);
    setenv("IST_LAUNCH", "slurm", 1);
    assert_int_equal(front_run(0, do_nothing, NULL), IST_ERR_ARGUMENT);
    set_up(state);
    unsetenv("IST_LAUNCH");
    setenv("IST_LAUNCH", "mpi", 1);
    assert_int_equal(front_run(0, do_nothing, NULL), IST_ERR_SYSTEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(alone, set_up),
        cmocka_unit_test_setup(under_a_launcher, set_up),
        cmocka_unit_test_setup(by_pmi, set_up),
        cmocka_unit_test_setup(contradictions, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
