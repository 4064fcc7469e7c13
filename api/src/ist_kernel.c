/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels by name, and their launch.
 */
#include "ist_internal.h"

#include <string.h>

#define KERNEL_COUNT_MAX 512u
#define IMAGE_COUNT_MAX 64u

/* Filled by constructors before main; read-only after. */
static const ist_kernel *kernels[KERNEL_COUNT_MAX];
static uint32_t kernel_count;
static const ist_kernel_image *images[IMAGE_COUNT_MAX];
static uint32_t image_count;

const ist_kernel *ist_kernel_find(const char *name)
{
    for (uint32_t i = 0; name != NULL && i < kernel_count; ++i) {
        if (strcmp(kernels[i]->name, name) == 0) {
            return kernels[i];
        }
    }
    return NULL;
}

void ist_kernel_register(const ist_kernel *kernel)
{
    if (kernel == NULL || kernel->name == NULL) {
        return;
    }
    const ist_kernel *known = ist_kernel_find(kernel->name);
    if (known == kernel) {
        return;
    }
    if (known != NULL || kernel_count == KERNEL_COUNT_MAX) {
        ist_log(IST_LOG_ERROR, "kernel %s of %s is not registered: %s", kernel->name,
                kernel->source != NULL ? kernel->source : "?",
                known != NULL ? "the name is taken" : "too many kernels");
        return;
    }
    kernels[kernel_count++] = kernel;
}

void ist_kernel_image_register(const ist_kernel_image *image)
{
    if (image == NULL || image->data == NULL) {
        return;
    }
    if (image_count == IMAGE_COUNT_MAX) {
        ist_log(IST_LOG_ERROR, "the device code of %s is not registered: %u images are the most",
                image->source != NULL ? image->source : "?", IMAGE_COUNT_MAX);
        return;
    }
    images[image_count++] = image;
}

const ist_kernel_image *ist_kernel_image_at(uint32_t index)
{
    return index < image_count ? images[index] : NULL;
}

static IST_COLD ist_status refuse_args(const ist_world *world, const ist_kernel *kernel,
                                       const void *args, size_t args_bytes)
{
    IST_RETURN_IF_ERROR(ist_check_pointer(world, kernel, "kernel", "launch"));
    if (args_bytes != kernel->args_bytes) {
        return ist_fail_value(world, IST_ERR_SIZE, "args_bytes", "launch", kernel->args_bytes,
                              args_bytes, "args_bytes is %zu, kernel %s takes %u", args_bytes,
                              kernel->name, kernel->args_bytes);
    }
    return ist_check_pointer(world, args, "args", "launch");
}

static inline ist_status check_args(const ist_world *world, const ist_kernel *kernel,
                                    const void *args, size_t args_bytes)
{
    bool good =
        kernel != NULL && args_bytes == kernel->args_bytes && (args != NULL || args_bytes == 0);
    return IST_LIKELY(good) ? IST_OK : refuse_args(world, kernel, args, args_bytes);
}

/* The first launch of a rank comes here too: it asks what the device can do. */
static IST_COLD ist_status check_blocks_slowly(ist_world *world, uint32_t block_count)
{
    const ist_backend_caps *caps = NULL;
    IST_RETURN_IF_ERROR(ist_world_caps(world, &caps));
    if (block_count >= 1 && block_count <= caps->sm_count) {
        return IST_OK;
    }
    return ist_fail_value(world, IST_ERR_RANGE, "block_count", "launch", caps->sm_count,
                          block_count, "block_count is %u, 1 to %u is possible here", block_count,
                          caps->sm_count);
}

static inline ist_status check_blocks(ist_world *world, uint32_t block_count)
{
    return IST_LIKELY(block_count - 1u < world->sm_count) ? IST_OK
                                                          : check_blocks_slowly(world, block_count);
}

ist_status ist_launch(ist_stream *stream, const ist_kernel *kernel, uint32_t block_count,
                      const void *args, size_t args_bytes)
{
    IST_RETURN_IF_ERROR(ist_check_stream(stream, "stream", "launch"));
    ist_world *world = stream->object.world;
    IST_RETURN_IF_ERROR(check_args(world, kernel, args, args_bytes));
    IST_RETURN_IF_ERROR(check_blocks(world, block_count));
    return world->ops.launch(world->self, stream->object.number, kernel, block_count, args,
                             args_bytes);
}
