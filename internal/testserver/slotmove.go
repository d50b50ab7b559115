package testserver

import "time"

// MoveSlot moves a slot and all its keys to another master as a resharding tool does: it announces the move
// to both ends, moves the keys a few at a time, and then tells every master the new owner. It sleeps for the
// pause before each step, so that tests meet a slot of which a part has moved.
func (c *Cluster) MoveSlot(slot int, to *Redis, pause time.Duration) {
	c.tb.Helper()
	from := c.AwaitOwner(slot, nil)
	if from == to {
		c.tb.Fatalf("slot %d is at %s already", slot, to.Address())
	}
	host, port := to.hostPort()
	fromID, toID := c.idOf(from), c.idOf(to)
	c.Do(to, "cluster", "setslot", slot, "importing", fromID)
	c.Do(from, "cluster", "setslot", slot, "migrating", toID)
	for {
		time.Sleep(pause)
		keys, _ := c.Do(from, "cluster", "getkeysinslot", slot, 3).([]any)
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", host, port, "", 0, 10_000, "replace"}
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
