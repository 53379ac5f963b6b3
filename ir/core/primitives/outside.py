"""Primitives that reach beyond the program: collectives, in which the ranks of a job take part together, and code of
the file."""

from __future__ import annotations

from .definition import IO, MEM, Facts, Family, Table, each, family

TABLE: Table = {
    **family(
        Family.COLLECTIVE,
        "AllReduce AllGather ReduceScatter Broadcast Send Receive AlltoAll NeighborExchange NeighborExchangeV2"
        " NeighborExchangeV2Grad AlltoAllV AlltoAllVC AllGatherV ReduceScatterV Barrier BatchISendIRecv"
        " CollectiveScatter CollectiveGather Reduce",
        kind=1,
    ),
    **family(
        Family.COLLECTIVE,
        "AllGatherMatmul MatmulReduceScatter MatmulAllReduceAddRmsNorm DistCommAllGatherIntoTensorUneven"
        " DistCommAllToAllV DistCommAllToAllVC DistCommBarrier DistCommBatchIsendIrecv DistCommBroadcast DistCommGather"
        " DistCommGatherIntoTensor DistCommIsend DistCommReduceScatterTensorUneven DistCommScatter"
        " DistCommScatterTensor InnerCommAllGather InnerCommAllReduce InnerCommAllToAllV InnerCommIrecv InnerCommIsend"
        " InnerCommReduceScatter",
    ),
    **each(
        "DistCommAllGather DistCommAllGatherIntoTensor DistCommAllReduce DistCommAllToAllVSingle DistCommIrecv"
        " DistCommReduce DistCommReduceScatter DistCommReduceScatterTensor",
        Facts(Family.COLLECTIVE, writes=(0,), any_tensor=True, attributes=MEM),
    ),
    **each("PyExecute PyInterpret PyFunc", Facts(Family.CODE, attributes=IO)),
    **family(Family.CODE, "Custom CustomExt HookBackward CellBackwardHook InsertGradientOf Morph"),
}
