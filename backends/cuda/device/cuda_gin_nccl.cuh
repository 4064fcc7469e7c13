/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cuda_gin_nccl.cuh
 * GIN over NCCL's device API: the only file of device code that includes NCCL's headers.
 *
 * NCCL's device ABI is tied to its release, so code compiled with IST_CUDA_GIN is built once for
 * each ABI and belongs to that libnccl.so.2 only; code compiled without it serves all of them. The
 * functions are calls, not inlined: the transports behind them are large and a kernel uses each
 * several times.
 *
 * One lane calls; it stands for its block. NCCL fences what the lane has seen (a coop sync lies
 * before) up to device scope itself.
 */
#ifndef IST_CUDA_GIN_NCCL_CUH
#define IST_CUDA_GIN_NCCL_CUH

/* Not ours to keep free of warnings, and found in a folder that is not a system one. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <nccl.h>
#include <nccl_device.h>
#pragma GCC diagnostic pop

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 7)
#error "GIN needs the device headers of NCCL 2.28.7 or newer"
#endif

/**
 * Whether kernels can put values. With 2.28, NCCL's thread for transports that it drives takes the
 * address of its own copy of the request for the place of the value, and crashes.
 */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
#define IST_CUDA_NCCL_VALUES 1
#else
#define IST_CUDA_NCCL_VALUES 0
#endif

#define IST_CUDA_CALL static inline __device__ __noinline__

/** From 2.30.7 on a signal says whether it covers earlier puts; before, every signal does. */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 7)
typedef ncclGin_StrongSignalAdd ist_cuda_strong_add;
typedef ncclGin_WeakSignalAdd ist_cuda_weak_add;
#else
typedef ncclGin_SignalAdd ist_cuda_strong_add;
typedef ncclGin_SignalAdd ist_cuda_weak_add;
#endif

IST_DEVICE_FN const ncclDevComm &ist_cuda_nccl_comm(const ist_dev_comm *dev)
{
    return *(const ncclDevComm *)ist_cuda_private(dev)->nccl;
}

IST_DEVICE_FN ncclWindow_t ist_cuda_nccl_window(const ist_dev_comm *dev, uint32_t window)
{
    const ist_dev_window *windows = (const ist_dev_window *)ist_cuda_table_pointer(&dev->windows);
    return (ncclWindow_t)ist_cuda_table_pointer(&windows[window].backend);
}

/**
 * NCCL has few contexts, and several of ours may share one: the numbers of signals and counters are
 * distinct over all contexts of the communicator.
 */
IST_DEVICE_FN ncclGinSignal_t ist_cuda_nccl_signal_number(const ist_dev_comm *dev, uint32_t context,
                                                          uint32_t signal)
{
    return context * dev->signal_count + signal;
}

IST_DEVICE_FN ncclGinCounter_t ist_cuda_nccl_counter_number(const ist_dev_comm *dev,
                                                            uint32_t context, uint32_t counter)
{
    return context * (dev->counter_count + ist_cuda_private(dev)->flush_block_count) + counter;
}

/** Always "add", also for 1: NCCL does not allow both kinds on one signal between resets. */
template <typename Add>
IST_DEVICE_FN Add ist_cuda_nccl_add(const ist_dev_comm *dev, uint32_t context,
                                    ist_gin_action action)
{
    Add add;
    add.signal = ist_cuda_nccl_signal_number(dev, context, action.signal);
    add.value = action.kind == IST_GIN_SIGNAL_INC || action.kind == IST_GIN_WEAK_SIGNAL_INC
                    ? 1u
                    : action.value;
    return add;
}

IST_DEVICE_FN int ist_cuda_nccl_is_weak(ist_gin_action action)
{
    return action.kind == IST_GIN_WEAK_SIGNAL_INC || action.kind == IST_GIN_WEAK_SIGNAL_ADD;
}

/** A put as the caller described it. */
struct ist_cuda_put {
    uint32_t context;
    uint32_t peer;
    uint32_t dst_window;
    uint32_t src_window;
    uint64_t dst_offset;
    uint64_t src_offset;
    uint64_t bytes;
    ist_gin_action remote;
    uint32_t local_counter;
};

template <typename Remote, typename Local>
IST_DEVICE_FN void ist_cuda_nccl_put_as(const ist_dev_comm *dev, const ist_cuda_put &put,
                                        Remote remote, Local local)
{
    const ncclDevComm &comm = ist_cuda_nccl_comm(dev);
    ncclGin gin(comm, (int)put.context);
    gin.put(ncclTeamWorld(comm), (int)put.peer, ist_cuda_nccl_window(dev, put.dst_window),
            put.dst_offset, ist_cuda_nccl_window(dev, put.src_window), put.src_offset, put.bytes,
            remote, local, ncclCoopThread());
}

template <typename Remote>
IST_DEVICE_FN void ist_cuda_nccl_put_to(const ist_dev_comm *dev, const ist_cuda_put &put,
                                        Remote remote)
{
    if (put.local_counter == IST_GIN_NO_COUNTER) {
        ist_cuda_nccl_put_as(dev, put, remote, ncclGin_None());
    } else {
        ncclGin_CounterInc local;
        local.counter = ist_cuda_nccl_counter_number(dev, put.context, put.local_counter);
        ist_cuda_nccl_put_as(dev, put, remote, local);
    }
}

IST_CUDA_CALL void ist_cuda_nccl_put(const ist_dev_comm *dev, ist_cuda_put put)
{
    if (put.remote.kind == IST_GIN_NONE) {
        ist_cuda_nccl_put_to(dev, put, ncclGin_None());
    } else if (ist_cuda_nccl_is_weak(put.remote)) {
        ist_cuda_nccl_put_to(dev, put,
                             ist_cuda_nccl_add<ist_cuda_weak_add>(dev, put.context, put.remote));
    } else {
        ist_cuda_nccl_put_to(dev, put,
                             ist_cuda_nccl_add<ist_cuda_strong_add>(dev, put.context, put.remote));
    }
}

#if IST_CUDA_NCCL_VALUES

template <typename Remote>
IST_DEVICE_FN void ist_cuda_nccl_put_value_to(const ist_dev_comm *dev, const ist_cuda_put &put,
                                              uint64_t value, Remote remote)
{
    const ncclDevComm &comm = ist_cuda_nccl_comm(dev);
    ncclGin gin(comm, (int)put.context);
    gin.putValue(ncclTeamWorld(comm), (int)put.peer, ist_cuda_nccl_window(dev, put.dst_window),
                 put.dst_offset, value, remote, ncclCoopThread());
}

IST_CUDA_CALL void ist_cuda_nccl_put_value(const ist_dev_comm *dev, ist_cuda_put put,
                                           uint64_t value)
{
    if (put.remote.kind == IST_GIN_NONE) {
        ist_cuda_nccl_put_value_to(dev, put, value, ncclGin_None());
    } else if (ist_cuda_nccl_is_weak(put.remote)) {
        ist_cuda_nccl_put_value_to(
            dev, put, value, ist_cuda_nccl_add<ist_cuda_weak_add>(dev, put.context, put.remote));
    } else {
        ist_cuda_nccl_put_value_to(
            dev, put, value, ist_cuda_nccl_add<ist_cuda_strong_add>(dev, put.context, put.remote));
    }
}

#endif

IST_CUDA_CALL void ist_cuda_nccl_signal(const ist_dev_comm *dev, uint32_t context, uint32_t peer,
                                        ist_gin_action remote)
{
    const ncclDevComm &comm = ist_cuda_nccl_comm(dev);
    ncclGin gin(comm, (int)context);
    if (ist_cuda_nccl_is_weak(remote)) {
        gin.signal(ncclTeamWorld(comm), (int)peer,
                   ist_cuda_nccl_add<ist_cuda_weak_add>(dev, context, remote), ncclCoopThread());
    } else {
        gin.signal(ncclTeamWorld(comm), (int)peer,
                   ist_cuda_nccl_add<ist_cuda_strong_add>(dev, context, remote), ncclCoopThread());
    }
}

IST_CUDA_CALL uint64_t ist_cuda_nccl_signal_read(const ist_dev_comm *dev, uint32_t context,
                                                 uint32_t signal, int acquire)
{
    ncclGin gin(ist_cuda_nccl_comm(dev), (int)context);
    ncclGinSignal_t number = ist_cuda_nccl_signal_number(dev, context, signal);
    return acquire ? gin.readSignal(number, 64, cuda::memory_order_acquire)
                   : gin.readSignal(number, 64, cuda::memory_order_relaxed);
}

IST_CUDA_CALL void ist_cuda_nccl_signal_reset(const ist_dev_comm *dev, uint32_t context,
                                              uint32_t signal)
{
    ncclGin(ist_cuda_nccl_comm(dev), (int)context)
        .resetSignal(ist_cuda_nccl_signal_number(dev, context, signal));
}

IST_CUDA_CALL uint64_t ist_cuda_nccl_counter_read(const ist_dev_comm *dev, uint32_t context,
                                                  uint32_t counter)
{
    return ncclGin(ist_cuda_nccl_comm(dev), (int)context)
        .readCounter(ist_cuda_nccl_counter_number(dev, context, counter), 56,
                     cuda::memory_order_acquire);
}

IST_CUDA_CALL void ist_cuda_nccl_counter_reset(const ist_dev_comm *dev, uint32_t context,
                                               uint32_t counter)
{
    ncclGin(ist_cuda_nccl_comm(dev), (int)context)
        .resetCounter(ist_cuda_nccl_counter_number(dev, context, counter));
}

#endif
