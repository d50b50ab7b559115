package store

// A SealedTable is a table with columns that a master key has encrypted.
type SealedTable string

// The tables with sealed columns.
const (
	// SealedSecrets has secrets, the others have what callers gave as credentials.
	SealedSecrets   SealedTable = "secrets"
	SealedProjects  SealedTable = "projects"
	SealedEndpoints SealedTable = "endpoints"
	SealedSchedules SealedTable = "schedules"
	SealedPolls     SealedTable = "polls"
	SealedCallbacks SealedTable = "callbacks"
)

// SealedTables lists them, the shortest tables first.
func SealedTables() []SealedTable {
	return []SealedTable{
		SealedSecrets, SealedProjects, SealedEndpoints, SealedSchedules, SealedPolls, SealedCallbacks,
	}
}

// A SealedRow is a row of one of them. KeyID is the master key that has encrypted what it has.
type SealedRow struct {
	Table   SealedTable
	ID      string
	Project string
	KeyID   string
	// Secret is the row of SealedSecrets; else it is nil.
	Secret *Secret
	// Headers are those of the row's callback, endpoint, project's defaults or poll's result; some are
	// sealed.
	Headers []Header
	// Template is a schedule's, sealed.
	Template string
}

// A SealedPage says what a step of a re-encryption did.
type SealedPage struct {
	// Done rows have the new key, Failed ones could not be changed and are as they were.
	Done, Failed int
	// Last is the id of the last row that was looked at; empty: there was none.
	Last string
}
