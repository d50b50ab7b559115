package accept

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// catalogEvery is how often a process reads the changes of others. A pause must take effect in less than
	// a second.
	catalogEvery = 400 * time.Millisecond
	// maxEndpoints bounds the cached endpoints.
	maxEndpoints = 50_000
	// maxProjects bounds the cached projects.
	maxProjects = 1_000
)

// A Catalog caches the settings of projects and endpoints. An entry is dropped when its row changes: at once
// for a change of this process, within catalogEvery for a change of another.
type Catalog struct {
	source Store

	mu        sync.RWMutex
	projects  map[string]*ProjectView
	endpoints map[string]*store.Endpoint // by bare id
	names     map[endpointName]string    // bare id by id or external id
	// subscribed are the endpoints with topics, by project.
	subscribed map[string][]*store.Endpoint
	// epoch grows whenever an entry is dropped. A row that was read in an earlier epoch is not cached: it may
	// be older than the change.
	epoch int64
	// seenEndpoints and seenProjects are the versions up to which changes have been read. Only refresh uses
	// them.
	seenEndpoints, seenProjects int64
}

type endpointName struct{ project, name string }

// A ProjectView is a snapshot of a project's settings. It is never changed.
type ProjectView struct {
	store.Project
	Policies map[string]store.Policy
	Rules    map[string]store.Success
	Profiles map[string]Profile
	// offline: the project's settings are unknown (see [Check]). A name that is no preset may exist.
	offline bool
}

// NewCatalog returns an empty Catalog.
func NewCatalog(source Store) *Catalog {
	c := &Catalog{source: source}
	c.clear()
	return c
}

func (c *Catalog) clear() {
	c.projects = make(map[string]*ProjectView)
	c.endpoints = make(map[string]*store.Endpoint)
	c.names = make(map[endpointName]string)
	c.subscribed = make(map[string][]*store.Endpoint)
}

// Project returns the settings of a project. The error wraps store.ErrNotFound for an unknown one.
func (c *Catalog) Project(ctx context.Context, id string) (*ProjectView, error) {
	c.mu.RLock()
	v, epoch := c.projects[id], c.epoch
	c.mu.RUnlock()
	if v != nil {
		return v, nil
	}
	p, err := c.source.Project(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read project %s: %w", id, err)
	}
	presets, err := c.source.AllPresets(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read the presets of project %s: %w", id, err)
	}
	v, err = viewOf(p, presets)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == epoch {
		if len(c.projects) >= maxProjects {
			clear(c.projects)
		}
		c.projects[id] = v
	}
	return v, nil
}

// viewOf decodes a project's presets, and fails if one cannot be decoded.
func viewOf(p store.Project, presets []store.Preset) (*ProjectView, error) {
	v := &ProjectView{
		Project: p, Policies: make(map[string]store.Policy), Rules: make(map[string]store.Success),
		Profiles: make(map[string]Profile),
	}
	for _, preset := range presets {
		var err error
		switch preset.Kind {
		case store.PresetPolicy:
			var policy store.Policy
			err = json.Unmarshal([]byte(preset.Value), &policy)
			policy.Name = preset.Name
			v.Policies[preset.Name] = policy
		case store.PresetSuccess:
			v.Rules[preset.Name] = store.Success{Name: preset.Name, Rule: preset.Value}
		case store.PresetProfile:
			var profile Profile
			err = json.Unmarshal([]byte(preset.Value), &profile)
			profile.Name = preset.Name
			v.Profiles[preset.Name] = profile
		}
		if err != nil {
			return nil, fmt.Errorf("decode %s %s of project %s: %w", preset.Kind, preset.Name, p.ID, err)
		}
	}
	return v, nil
}

// Named returns the project's endpoints with those ids (with prefix) or external ids, by that name. Unknown
// and deleted endpoints are left out.
func (c *Catalog) Named(ctx context.Context, project string,
	names []string) (map[string]*store.Endpoint, error) {
	found := make(map[string]*store.Endpoint, len(names))
	var missing []string
	c.mu.RLock()
	epoch := c.epoch
	for _, name := range names {
		if _, ok := found[name]; ok {
			continue
		}
		if e := c.endpoints[c.names[endpointName{project, name}]]; e != nil && e.DeletedAt == 0 {
			found[name] = e
		} else {
			missing = append(missing, name)
		}
	}
	c.mu.RUnlock()
	if len(missing) == 0 {
		return found, nil
	}
	read, err := c.source.FindEndpoints(ctx, project, missing)
	if err != nil {
		return nil, fmt.Errorf("find endpoints: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, e := range read {
		if e.DeletedAt != 0 {
			continue
		}
		found[name] = &e
		if c.epoch == epoch {
			c.keep(&e)
		}
	}
	return found, nil
}

// keep caches an endpoint. The caller holds c.mu.
func (c *Catalog) keep(e *store.Endpoint) {
	if len(c.endpoints) >= maxEndpoints {
		clear(c.endpoints)
		clear(c.names)
	}
	c.endpoints[e.ID] = e
	if e.DeletedAt != 0 {
		return
	}
	c.names[endpointName{e.Project, store.EndpointPrefix + e.ID}] = e.ID
	if e.ExternalID != "" {
		c.names[endpointName{e.Project, e.ExternalID}] = e.ID
	}
}

// Endpoint returns an endpoint by its bare id, also a deleted one: its row stays in SQL. Its error is
// store.ErrNotFound if there is none.
func (c *Catalog) Endpoint(ctx context.Context, id string) (*store.Endpoint, error) {
	c.mu.RLock()
	e, epoch := c.endpoints[id], c.epoch
	c.mu.RUnlock()
	if e != nil {
		return e, nil
	}
	read, err := c.source.EndpointsByID(ctx, []string{id})
	if err != nil {
		return nil, fmt.Errorf("read endpoint %s%s: %w", store.EndpointPrefix, id, err)
	}
	if len(read) == 0 {
		return nil, fmt.Errorf("read endpoint %s%s: %w", store.EndpointPrefix, id, store.ErrNotFound)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == epoch {
		c.keep(&read[0])
	}
	return &read[0], nil
}

// subscribers returns the project's endpoints that have topics and are not being deleted.
func (c *Catalog) subscribers(ctx context.Context, project string) ([]*store.Endpoint, error) {
	c.mu.RLock()
	known, ok := c.subscribed[project]
	epoch := c.epoch
	c.mu.RUnlock()
	if ok {
		return known, nil
	}
	var subscribers []*store.Endpoint
	for after, more := "", true; more; {
		read, err := c.source.Subscribers(ctx, project, after, index.PageRows)
		if err != nil {
			return nil, fmt.Errorf("read the subscribers of project %s: %w", project, err)
		}
		for i := range read {
			subscribers = append(subscribers, &read[i])
			after = read[i].ID
		}
		more = len(read) == index.PageRows
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == epoch {
		if len(c.subscribed) >= maxProjects {
			clear(c.subscribed)
		}
		c.subscribed[project] = subscribers
	}
	return subscribers, nil
}

// forgetEndpoints drops changed endpoints from the cache, and the subscribers of their projects.
func (c *Catalog) forgetEndpoints(changed []store.Endpoint) {
	if len(changed) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	for i := range changed {
		delete(c.subscribed, changed[i].Project)
		if e := c.endpoints[changed[i].ID]; e != nil {
			delete(c.names, endpointName{e.Project, e.ExternalID})
			delete(c.endpoints, e.ID)
		}
		delete(c.names, endpointName{changed[i].Project, changed[i].ExternalID})
	}
}

func (c *Catalog) forgetProject(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	delete(c.projects, id)
}

// refresh drops everything that changed since the last call. The caller holds the token of settingsLock.
func (c *Catalog) refresh(ctx context.Context) error {
	for more := true; more; {
		read, err := c.source.EndpointsChanged(ctx, c.seenEndpoints, index.PageRows)
		if err != nil {
			return fmt.Errorf("read changed endpoints: %w", err)
		}
		c.forgetEndpoints(read)
		more = len(read) == index.PageRows
		if len(read) > 0 {
			c.seenEndpoints = read[len(read)-1].Version
		}
	}
	for more := true; more; {
		read, err := c.source.ProjectsChanged(ctx, c.seenProjects, index.PageRows)
		if err != nil {
			return fmt.Errorf("read changed projects: %w", err)
		}
		for i := range read {
			c.forgetProject(read[i].ID)
		}
		more = len(read) == index.PageRows
		if len(read) > 0 {
			c.seenProjects = read[len(read)-1].Version
		}
	}
	return nil
}
