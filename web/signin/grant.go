package signin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Grant is what the members of a group may do: scopes in one project, or everything.
type Grant struct {
	Group   string        `json:"group"`
	Project string        `json:"project,omitempty"`
	Scopes  []store.Scope `json:"scopes,omitempty"`
	// Root gives the rights of the admin key of the settings. It excludes Project and Scopes.
	Root bool `json:"root,omitempty"`
}

// maxGrants bounds the grants of the settings.
const maxGrants = 1000

// ParseGrants reads grants as JSON:
//
//	[{"group": "payments", "project": "default", "scopes": ["operate"]},
//	 {"group": "platform", "root": true}]
//
// Its error is worded for a setting.
func ParseGrants(text string) ([]Grant, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	var all []Grant
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("is not a JSON list such as "+
			`[{"group": "payments", "project": "default", "scopes": ["operate"]}]: %w`, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has more than one JSON value")
	}
	if len(all) == 0 || len(all) > maxGrants {
		return nil, fmt.Errorf("has %d entries; it needs 1 to %d", len(all), maxGrants)
	}
	for i := range all {
		if err := all[i].check(); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return all, nil
}

func (g *Grant) check() error {
	key := store.Key{Scopes: g.Scopes}
	switch {
	case g.Group == "":
		return errors.New("has no group")
	case g.Root && (g.Project != "" || len(g.Scopes) > 0):
		return fmt.Errorf("group %q: root stands alone, without project and scopes", g.Group)
	case g.Root:
		return nil
	case g.Project == "":
		return fmt.Errorf("group %q: has no project", g.Group)
	}
	for _, s := range g.Scopes {
		if !slices.Contains(store.Scopes[:], s) {
			return fmt.Errorf("group %q: %q is not a scope (send, read, operate, admin)", g.Group, s)
		}
	}
	if !key.Allows(store.ScopeRead) {
		return fmt.Errorf("group %q: needs the scope read, operate or admin to see pages", g.Group)
	}
	return nil
}

// Granted returns the grants of the groups, in the order of grants.
func Granted(grants []Grant, groups []string) (granted []Grant) {
	for _, g := range grants {
		if slices.Contains(groups, g.Group) {
			granted = append(granted, g)
		}
	}
	return granted
}
