package query

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func cursorAt(due int64) store.Cursor {
	return store.Cursor{DueAt: due, ID: "01JD6QZ0000000000000000001"}
}

// signed returns Cursors whose key repeats one byte.
func signed(key byte, project string) Cursors {
	return Cursors{Key: bytes.Repeat([]byte{key}, CursorKeyBytes), Project: project}
}

// wantRejected checks that read rejects every change of one character of the cursor, and the texts in wrong.
func wantRejected(t *testing.T, cursor string, read func(text string) error, wrong ...string) {
	t.Helper()
	wrong = append(wrong, "", cursor+"A", cursor+"\n", cursor[1:], cursor+"=", "!")
	for i := range cursor {
		for _, c := range "A_7" {
			if bad := cursor[:i] + string(c) + cursor[i+1:]; bad != cursor {
				wrong = append(wrong, bad)
			}
		}
	}
	for _, bad := range wrong {
		if read(bad) == nil {
			t.Errorf("cursor %q is accepted", bad)
		}
	}
}

// TestCursor checks that a cursor decodes to its position, and only for the same list, project and key.
func TestCursor(t *testing.T) {
	t.Parallel()
	ours := signed(1, "shop")
	for _, due := range []int64{0, 1, 1795248000000, -1} {
		s := ours.Encode(ListByDue, cursorAt(due))
		got, err := ours.Decode(ListByDue, s)
		if err != nil || got != cursorAt(due) {
			t.Errorf("due %d: got %v, %v", due, got, err)
		}
		if _, err := ours.Decode(ListNewest, s); err == nil {
			t.Errorf("due %d: the cursor of one list is valid in another", due)
		}
		for name, other := range map[string]Cursors{
			"another project": signed(1, "bank"), "no project": signed(1, ""),
			"another key": signed(2, "shop"), "no key": {Project: "shop"},
		} {
			if _, err := other.Decode(ListByDue, s); err == nil {
				t.Errorf("due %d: the cursor is valid with %s", due, name)
			}
		}
		wantRejected(t, s, func(text string) error {
			_, err := ours.Decode(ListByDue, text)
			return err
		})
	}
}

// TestCursorsWithImpossibleIDs checks that a cursor with a valid signature is rejected if no row of the list
// can have its id.
func TestCursorsWithImpossibleIDs(t *testing.T) {
	t.Parallel()
	ours := signed(1, "shop")
	ulid := cursorAt(0).ID
	nul, long := []string{"\x00", "\xff", "a\x00b"}, strings.Repeat("x", maxCursorID+1)
	near := []string{ulid[1:], ulid + "0", strings.ToLower(ulid), "8" + ulid[1:], "shop"}
	for lists, c := range map[string]struct{ right, wrong []string }{
		string([]byte{
			ListNewest, ListByDue, ListAudit, ListEndpoints, ListRedrives, ListSchedules, ListKeys,
			ListAttempts,
		}): {
			[]string{ulid}, slices.Concat(nul, near, []string{"", long}),
		},
		string([]byte{ListLanes, ListProjects, ListPolicies, ListRules, ListProfiles}): {
			append(near, "https://h:443"), append(nul, "", long),
		},
	} {
		for _, list := range []byte(lists) {
			for i, id := range slices.Concat(c.right, c.wrong) {
				_, err := ours.Decode(list, ours.Encode(list, store.Cursor{ID: id}))
				if accepted := err == nil; accepted != (i < len(c.right)) {
					t.Errorf("list %c: the id %.40q is accepted: %v", list, id, accepted)
				}
			}
		}
	}
	if _, err := ours.Decode(ListOutcomes, ours.sealed([]byte("o1234"))); err == nil {
		t.Error("a cursor that is too short is accepted")
	}
}

// TestOutcomeCursor checks that a cursor of outcomes decodes to its position, and that a changed one is
// rejected.
func TestOutcomeCursor(t *testing.T) {
	t.Parallel()
	ours := signed(1, "shop")
	for _, c := range []store.OutcomeCursor{
		{}, {Tx: 1795248000000, Group: 7, Item: 300}, {Tx: -1, Group: -1, Item: -1},
	} {
		s := ours.EncodeOutcome(c)
		if got, err := ours.DecodeOutcome(s); err != nil || got != c {
			t.Errorf("%+v: got %+v, %v", c, got, err)
		}
		// The last ones have valid signatures and wrong lengths.
		wantRejected(t, s, func(text string) error {
			_, err := ours.DecodeOutcome(text)
			return err
		}, ours.sealed([]byte{ListOutcomes}), ours.sealed([]byte("o12345678")), ours.sealed(make([]byte, 25)))
	}
}
