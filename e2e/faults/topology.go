package faults

import "slices"

// topologyFaults are those of Redis as people run it: a Cluster, Sentinels, several dispatchers on one index.
func topologyFaults() []fault {
	return slices.Concat(clusterFaults(), sentinelFaults(), sharedFaults(), otherServerFaults())
}
