# SPDX-License-Identifier: Apache-2.0
# The names of the package, for tools that check types.
from kvmem import cuda as cuda, nixl as nixl, vmm as vmm
from kvmem._constants import Access as Access, Accessor as Accessor, AdoptFlags as AdoptFlags, AgentFlags as AgentFlags, Choice as Choice
from kvmem._constants import CompletionKind as CompletionKind, Compute as Compute, CudaCapabilities as CudaCapabilities
from kvmem._constants import Direction as Direction, DirectoryChange as DirectoryChange, DiskFlags as DiskFlags, Domain as Domain
from kvmem._constants import ElasticFlags as ElasticFlags, FetchFlags as FetchFlags, Granularity as Granularity
from kvmem._constants import LeaseFlags as LeaseFlags
from kvmem._constants import Locality as Locality, LogLevel as LogLevel, MemoryType as MemoryType, Method as Method, OpenFlags as OpenFlags
from kvmem._constants import Durability as Durability, Eviction as Eviction, StoreFlags as StoreFlags
from kvmem._constants import Origin as Origin, PinnedFlags as PinnedFlags, PublishFlags as PublishFlags
from kvmem._constants import RegionFlags as RegionFlags, ServeFlags as ServeFlags, SharedObject as SharedObject
from kvmem._constants import ShareFlags as ShareFlags, Status as Status, SubmitFlags as SubmitFlags
from kvmem._constants import SyncMode as SyncMode, SystemFlags as SystemFlags, Tier as Tier
from kvmem._constants import TransferFlags as TransferFlags, Transport as Transport, Order as Order
from kvmem._constants import VmmFlags as VmmFlags, VmmLocation as VmmLocation
from kvmem._directory import Directory as Directory, Entry as Entry, Event as Event
from kvmem._errors import AlreadyExists as AlreadyExists, Busy as Busy, Cancelled as Cancelled, Cause as Cause
from kvmem._errors import Corrupt as Corrupt, CudaError as CudaError, CudaUnavailable as CudaUnavailable, Error as Error
from kvmem._errors import InvalidArgument as InvalidArgument, InvalidState as InvalidState, IoError as IoError
from kvmem._errors import NixlError as NixlError, NixlUnavailable as NixlUnavailable, NotFound as NotFound
from kvmem._errors import OutOfMemory as OutOfMemory, OutOfRange as OutOfRange, Panic as Panic, PeerLost as PeerLost
from kvmem._errors import PermissionDenied as PermissionDenied, Stale as Stale, TimedOut as TimedOut
from kvmem._errors import Unsupported as Unsupported, VersionMismatch as VersionMismatch
from kvmem._explanation import ComparedMethod as ComparedMethod, Explanation as Explanation
from kvmem._layout import Layout as Layout, Lease as Lease
from kvmem._log import log_to as log_to
from kvmem._nixl import Agent as Agent, Notification as Notification, Registration as Registration
from kvmem._nixl import RegistrationInfo as RegistrationInfo, load_nixl as load_nixl
from kvmem._queue import Completion as Completion, Queue as Queue
from kvmem._region import ElasticInfo as ElasticInfo, Holders as Holders, Region as Region, RegionInfo as RegionInfo
from kvmem._region import Residency as Residency
from kvmem._share import Broker as Broker, BrokerInfo as BrokerInfo, Share as Share, ShareInfo as ShareInfo
from kvmem._shape import BlockAccess as BlockAccess, LayoutInfo as LayoutInfo, Requirements as Requirements, Shape as Shape, Strides as Strides
from kvmem._statistics import Latencies as Latencies, MethodStatistics as MethodStatistics, Statistics as Statistics
from kvmem._statistics import export_trace as export_trace, serve_statistics as serve_statistics
from kvmem._statistics import statistics as statistics, statistics_text as statistics_text
from kvmem._store import Store as Store, StoreEntry as StoreEntry, StoreInfo as StoreInfo, StoreRun as StoreRun
from kvmem._tensor import Tensor as Tensor
from kvmem._transfer import Range as Range, Table as Table, Transfer as Transfer, TransferInfo as TransferInfo
from kvmem._transfer import move as move
from kvmem._library import path as _path

library_path = _path
__version__: str
