package index

import (
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Listener hears what changes in the index. Its methods must not block.
type Listener interface {
	// NewGeneration says which generation of the index this process works with from now on.
	NewGeneration(generation int64)
	// SettingsChanged names lanes whose settings have changed, before the index is told of them.
	SettingsChanged(settings []schedule.LaneSetting)
	// Wake says that the shard may have something to claim.
	Wake(shard int)
}

// An Observer counts what the index's upkeep ends.
type Observer interface {
	// Ended says that callbacks became terminal without a result.
	Ended(n int, state store.State, reason store.Reason)
	// Expired names callbacks that ended as dead without being claimed, by the index's clock.
	Expired(rows []store.OpenRow, now int64)
}
