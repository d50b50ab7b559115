package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clusterSlots is the number of slots of every Cluster. clusterMasters is the number of masters here.
const (
	clusterSlots   = 16384
	clusterMasters = 3
)

// ClusterOptions are the options of a Cluster. The zero value is three masters without replicas. A node that
// is silent for two seconds counts as dead.
type ClusterOptions struct {
	// Replicas adds one replica to each master.
	Replicas bool
	// Password is the password of the default user of every node. Empty: none.
	Password string
	// Args are additional arguments of every node.
	Args []string
	// TLS are arguments with certificates. If TLS is not nil, every node also listens for TLS on a second
	// port, and the nodes use TLS with each other. The plain ports stay for the test.
	TLS []string
}

// A Cluster is a Redis Cluster. Its nodes can be killed, paused and started again one by one. The nodes
// decide which of them are masters, so the methods read that from the nodes.
type Cluster struct {
	// Nodes are the first three masters, and then their replicas in the same order.
	Nodes []*Redis

	group
	tlsPorts []string // one for each node, or empty
}

// NewCluster starts a Cluster. It returns when every node reports that the Cluster is ok, and every replica
// has its master's data. The Cluster ends with the test.
func NewCluster(tb testing.TB, o ClusterOptions) *Cluster {
	tb.Helper()
	c := &Cluster{group: group{tb, o.Password}}
	n := clusterMasters
	if o.Replicas {
		n *= 2
	}
	var buses []string
	for range n {
		bus := FreePort(tb)
		buses = append(buses, bus)
		args := append([]string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout",
			"2000",
			"--cluster-port", bus, "--repl-diskless-sync-delay", "0",
			// A replica takes over even if a busy machine has kept it from its master for a while.
			"--cluster-replica-validity-factor", "0",
		}, slices.Concat(o.Args, c.authArgs())...)
		if o.TLS != nil {
			port := FreePort(tb)
			c.tlsPorts = append(c.tlsPorts, port)
			args = append(append(args, "--tls-port", port, "--tls-cluster", "yes", "--tls-replication",
				"yes"), o.TLS...)
		}
		c.Nodes = append(c.Nodes, NewRedis(tb, args...))
	}
	for i, master := range c.Nodes[:clusterMasters] {
		c.Do(master, "cluster", "addslotsrange", i*clusterSlots/clusterMasters,
			(i+1)*clusterSlots/clusterMasters-1)
	}
	for i, node := range c.Nodes {
		c.Do(node, "cluster", "set-config-epoch", i+1)
	}
	port := c.Nodes[0].port
	if c.tlsPorts != nil {
		port = c.tlsPorts[0]
	}
	for _, node := range c.Nodes[1:] {
		c.Do(node, "cluster", "meet", "127.0.0.1", port, buses[0])
	}
	c.AwaitOK(c.Nodes...)
	if o.Replicas {
		c.follow()
	}
	return c
}

// SharedCluster returns one Cluster without replicas for the whole test binary. Each test uses another key
// prefix. A test that disturbs the nodes needs NewCluster. The package's TestMain must call [Main].
func SharedCluster(tb testing.TB) *Cluster {
	tb.Helper()
	return sharedServers(tb).cluster.get(tb, func(tb testing.TB) *Cluster {
		return NewCluster(tb, ClusterOptions{})
	})
}

// follow makes the last nodes replicas of the first ones. It returns when every node knows all replicas.
func (c *Cluster) follow() {
	c.tb.Helper()
	for i, master := range c.Nodes[:clusterMasters] {
		c.Do(c.Nodes[clusterMasters+i], "cluster", "replicate", c.idOf(master))
	}
	for _, replica := range c.Nodes[clusterMasters:] {
		c.AwaitReplica(replica)
	}
	for _, node := range c.Nodes {
		await(c.tb, startTimeout, node.Address()+" to know the replicas", func(context.Context) error {
			known := 0
			for _, v := range c.view(node) {
				if v.is("slave") && v.master != "-" {
					known++
				}
			}
			if known != clusterMasters {
				return fmt.Errorf("it knows %d replicas", known)
			}
			return nil
		})
	}
}

// URL returns "redis+cluster://" with the addresses of all nodes and the password.
func (c *Cluster) URL() string {
	var hosts []string
	for _, node := range c.Nodes {
		hosts = append(hosts, node.Address())
	}
	return "redis+cluster://" + c.user() + strings.Join(hosts, ",")
}

// TLSURL returns "rediss+cluster://" with the TLS addresses of all nodes and the password.
func (c *Cluster) TLSURL() string {
	var hosts []string
	for _, port := range c.tlsPorts {
		hosts = append(hosts, net.JoinHostPort("127.0.0.1", port))
	}
	return "rediss+cluster://" + c.user() + strings.Join(hosts, ",")
}

// A nodeView is one line of a node's CLUSTER NODES, about itself or another node.
type nodeView struct {
	id, flags, master string
	slots             []string
}

func (v nodeView) is(flag string) bool { return slices.Contains(strings.Split(v.flags, ","), flag) }

// view returns a node's list of all nodes. It is empty if the node does not answer.
func (c *Cluster) view(node *Redis) []nodeView {
	text, err := c.try(node, "cluster", "nodes")
	if err != nil {
		return nil
	}
	var views []nodeView
	for line := range strings.Lines(fmt.Sprint(text)) {
		words := strings.Fields(line)
		if len(words) < 8 {
			continue
		}
		views = append(views, nodeView{id: words[0], flags: words[2], master: words[3], slots: words[8:]})
	}
	return views
}

// myself returns a node's view of itself.
func (c *Cluster) myself(node *Redis) (nodeView, bool) {
	for _, v := range c.view(node) {
		if v.is("myself") {
			return v, true
		}
	}
	return nodeView{}, false
}

func (c *Cluster) idOf(node *Redis) string {
	c.tb.Helper()
	var own nodeView
	await(c.tb, startTimeout, "the id of "+node.Address(), func(context.Context) error {
		var ok bool
		own, ok = c.myself(node)
		if !ok {
			return errors.New("no answer")
		}
		return nil
	})
	return own.id
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.tb.Helper()
	for _, node := range c.Nodes {
		if got, err := c.try(node, "cluster", "keyslot", key); err == nil {
			return int(got.(int64))
		}
	}
	c.tb.Fatal("no node of the Cluster answers")
	return 0
}

// owner returns the node that reports itself as a master with the slot. It returns nil if no node or several
// nodes do.
func (c *Cluster) owner(slot int) *Redis {
	var owner *Redis
	for _, node := range c.Nodes {
		v, ok := c.myself(node)
		if !ok || !v.is("master") || !containsSlot(v.slots, slot) {
			continue
		}
		if owner != nil {
			return nil
		}
		owner = node
	}
	return owner
}

// containsSlot reports whether ranges from CLUSTER NODES, such as "5" and "0-100", contain a slot. It ignores
// "[…]", a slot that is being moved.
func containsSlot(ranges []string, slot int) bool {
	for _, r := range ranges {
		from, to, isRange := strings.Cut(r, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(to)
		}
		if err == nil && first <= slot && slot <= last {
			return true
		}
	}
	return false
}

// AwaitOwner waits until the slot has one owner other than not, which may be nil, and returns it.
func (c *Cluster) AwaitOwner(slot int, not *Redis) *Redis {
	c.tb.Helper()
	var owner *Redis
	await(c.tb, failoverTimeout, fmt.Sprintf("slot %d to have a new owner", slot),
		func(context.Context) error {
			owner = c.owner(slot)
			if owner == nil || owner == not {
				return errors.New("no new owner yet")
			}
			return nil
		})
	return owner
}

// AwaitOK waits until each of the nodes reports that the Cluster is ok, and knows all nodes.
func (c *Cluster) AwaitOK(nodes ...*Redis) {
	c.tb.Helper()
	for _, node := range nodes {
		await(c.tb, startTimeout, "the Cluster to be ok at "+node.Address(), func(context.Context) error {
			info, err := c.try(node, "cluster", "info")
			if err != nil {
				return err
			}
			text, known := fmt.Sprint(info), fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Nodes))
			if !strings.Contains(text, "cluster_state:ok") || !strings.Contains(text, known) {
				return fmt.Errorf("not ready: %.120s", text)
			}
			return nil
		})
	}
}

// TakeOver makes a replica the master with CLUSTER FAILOVER, which loses no data. If the master does not
// answer in time, Redis gives up, so TakeOver repeats the command. It returns when the replica is the master.
func (c *Cluster) TakeOver(replica *Redis) {
	c.tb.Helper()
	var requestedAt time.Time
	await(c.tb, startTimeout, replica.Address()+" to be a master", func(context.Context) error {
		v, ok := c.myself(replica)
		if ok && v.is("master") && len(v.slots) > 0 {
			return nil
		}
		if time.Since(requestedAt) > 6*time.Second {
			requestedAt = time.Now()
			c.Do(replica, "cluster", "failover")
		}
		return fmt.Errorf("its flags are %s", v.flags)
	})
}

// failoverTimeout bounds the wait for a failover. On a busy machine votes come late. Then the election fails
// and is repeated seconds later.
const failoverTimeout = 90 * time.Second

// MoveSlot moves a slot and all its keys to another master, as a resharding tool does. It announces the move
// to both masters, moves the keys in small steps, and then sends the new owner to every master. It sleeps for
// the pause before each step, so that tests find a partly moved slot.
func (c *Cluster) MoveSlot(slot int, to *Redis, pause time.Duration) {
	c.tb.Helper()
	from := c.AwaitOwner(slot, nil)
	if from == to {
		c.tb.Fatalf("slot %d is at %s already", slot, to.Address())
	}
	fromID, toID := c.idOf(from), c.idOf(to)
	c.Do(to, "cluster", "setslot", slot, "importing", fromID)
	c.Do(from, "cluster", "setslot", slot, "migrating", toID)
	for {
		time.Sleep(pause)
		keys, _ := c.Do(from, "cluster", "getkeysinslot", slot, 3).([]any)
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", "127.0.0.1", to.port, "", 0, 10_000, "replace"}
		if c.password != "" {
			args = append(args, "auth", c.password)
		}
		c.Do(from, append(append(args, "keys"), keys...)...)
	}
	// The new owner must come first, so that the slot always has an owner.
	c.Do(to, "cluster", "setslot", slot, "node", toID)
	c.Do(from, "cluster", "setslot", slot, "node", toID)
	for _, node := range c.Nodes {
		if v, ok := c.myself(node); ok && v.is("master") && node != from && node != to {
			c.Do(node, "cluster", "setslot", slot, "node", toID)
		}
	}
}
