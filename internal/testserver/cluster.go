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

// clusterSlots is how many slots a Cluster has; clusterMasters is how many masters share them here.
const (
	clusterSlots   = 16384
	clusterMasters = 3
)

// ClusterOptions say how the nodes of a Cluster are started. The zero value is three masters without replicas
// that take a silent node for dead after two seconds.
type ClusterOptions struct {
	// Replicas gives each master one.
	Replicas bool
	// Password of the default user of every node; empty: none.
	Password string
	// Args are given to every node as they are.
	Args []string
	// TLS, if not nil, are the arguments with the certificates: every node listens for TLS too, on a port of
	// its own, and the nodes speak TLS with each other. The plain ports stay, for the test.
	TLS []string
}

// A Cluster is a Redis Cluster. Its nodes can be killed, paused and started again one by one. The Cluster
// itself decides which of them are masters; the methods ask it.
type Cluster struct {
	// Nodes are the first three masters and, where it was asked for, their replicas in the same order.
	Nodes []*Redis

	group
	tlsPorts []string // of the nodes, or none
}

// NewCluster starts a Cluster, and returns when every node says that it is ok and every replica has its
// master's data. The Cluster ends with the test.
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
			// A replica that a busy machine kept from its master for a while takes over all the same.
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

// SharedCluster returns one Cluster without replicas for the whole test binary. Tests keep apart by their key
// prefix. The tests that disturb its nodes need one of their own. The package's TestMain must call [Main].
func SharedCluster(tb testing.TB) *Cluster {
	tb.Helper()
	return lived(tb).cluster.get(tb, func(tb testing.TB) *Cluster { return NewCluster(tb, ClusterOptions{}) })
}

// follow makes each of the last nodes the replica of one of the first, and returns when every node knows.
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
				return fmt.Errorf("it knows %d", known)
			}
			return nil
		})
	}
}

// URL is "redis+cluster://" with the addresses of all nodes, and the password if there is one.
func (c *Cluster) URL() string {
	var hosts []string
	for _, node := range c.Nodes {
		hosts = append(hosts, node.Address())
	}
	return "redis+cluster://" + c.user() + strings.Join(hosts, ",")
}

// TLSURL is "rediss+cluster://" with the addresses of all nodes for TLS, and the password if there is one.
func (c *Cluster) TLSURL() string {
	var hosts []string
	for _, port := range c.tlsPorts {
		hosts = append(hosts, net.JoinHostPort("127.0.0.1", port))
	}
	return "rediss+cluster://" + c.user() + strings.Join(hosts, ",")
}

// A nodeView is what one node says of another, or of itself.
type nodeView struct {
	id, flags, master string
	slots             []string
}

func (v nodeView) is(flag string) bool { return slices.Contains(strings.Split(v.flags, ","), flag) }

// view is a node's list of all nodes; empty if it does not answer.
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

// myself is what a node says of itself.
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
	await(c.tb, startTimeout, node.Address()+" to say its id", func(context.Context) error {
		var ok bool
		own, ok = c.myself(node)
		if !ok {
			return errors.New("it does not")
		}
		return nil
	})
	return own.id
}

// Slot is the slot of a key.
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

// owner is the one node that says that it is a master with the slot. It is nil while none or two say so.
func (c *Cluster) owner(slot int) *Redis {
	var owner *Redis
	for _, node := range c.Nodes {
		v, ok := c.myself(node)
		if !ok || !v.is("master") || !holds(v.slots, slot) {
			continue
		}
		if owner != nil {
			return nil
		}
		owner = node
	}
	return owner
}

// holds reads ranges as CLUSTER NODES prints them: "5", "0-100"; "[…]" is a slot on its way.
func holds(ranges []string, slot int) bool {
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
				return errors.New("it has none")
			}
			return nil
		})
	return owner
}

// AwaitOK waits until each of the nodes says that the Cluster is ok and knows all of them.
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

// TakeOver makes a replica the master by CLUSTER FAILOVER, which loses nothing, and returns when it is. Where
// the master does not answer in time nothing changes, and it is asked again.
func (c *Cluster) TakeOver(replica *Redis) {
	c.tb.Helper()
	var asked time.Time
	await(c.tb, startTimeout, replica.Address()+" to be a master", func(context.Context) error {
		v, ok := c.myself(replica)
		if ok && v.is("master") && len(v.slots) > 0 {
			return nil
		}
		if time.Since(asked) > 6*time.Second {
			asked = time.Now()
			c.Do(replica, "cluster", "failover")
		}
		return fmt.Errorf("it is %s", v.flags)
	})
}

// failoverTimeout bounds the wait for a replica that takes over. On a busy machine votes come late: then an
// election fails, and is repeated seconds later.
const failoverTimeout = 90 * time.Second

// MoveSlot moves a slot and all its keys to another master as a resharding tool does: it announces the move
// to both ends, moves the keys a few at a time, and then tells every master the new owner. It sleeps for the
// pause before each step, so that tests meet a slot of which a part has moved.
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
	// The new owner first: it must not forget the slot before the old one has given it away.
	c.Do(to, "cluster", "setslot", slot, "node", toID)
	c.Do(from, "cluster", "setslot", slot, "node", toID)
	for _, node := range c.Nodes {
		if v, ok := c.myself(node); ok && v.is("master") && node != from && node != to {
			c.Do(node, "cluster", "setslot", slot, "node", toID)
		}
	}
}
