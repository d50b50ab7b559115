package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Catalog is what people have set and what attempts are made by: projects with their defaults and presets, and endpoints.
type Catalog interface {
	// Project returns store.ErrNotFound for one that does not exist.
	Project(ctx context.Context, id string) (store.Project, error)
	AllPresets(ctx context.Context, project string) ([]store.Preset, error)
	// FindEndpoints returns, by the name that was asked for, the endpoints that have it as their id (with its prefix) or as their
	// external id.
	FindEndpoints(ctx context.Context, project string, names []string) (map[string]store.Endpoint, error)
	// EndpointsByID returns those that exist, deleted ones included, of whatever project.
	EndpointsByID(ctx context.Context, ids []string) ([]store.Endpoint, error)
	// EndpointsChanged and ProjectsChanged return what has a version above since, at most limit, by version.
	EndpointsChanged(ctx context.Context, since int64, limit int) ([]store.Endpoint, error)
	ProjectsChanged(ctx context.Context, since int64, limit int) ([]store.Project, error)
	// Subscribers returns the project's endpoints that have topics and ids above after, by id, at most limit.
	Subscribers(ctx context.Context, project, after string, limit int) ([]store.Endpoint, error)
}

const (
	// catalogEvery is how often a process asks what others have changed: a stop has to take effect in less than a second.
	catalogEvery = 400 * time.Millisecond
	// maxEndpoints bounds the endpoints that are remembered.
	maxEndpoints = 50_000
	// maxProjects bounds the projects that are.
	maxProjects = 1_000
)

// A catalog remembers what was set, and forgets what has changed: at once what this process changed, within catalogEvery what others
// did.
type catalog struct {
	source Catalog

	mu        sync.RWMutex
	projects  map[string]*projectView
	endpoints map[string]*store.Endpoint // by bare id
	names     map[endpointName]string    // bare ids
	// subscribed are the endpoints with topics, by project.
	subscribed map[string][]*store.Endpoint
	// epoch grows with all that is forgotten: what was read before is not remembered.
	epoch int64
	// seen are the versions up to which changes have been read.
	seenEndpoints, seenProjects int64
}

type endpointName struct{ project, name string }

// A projectView is what a project has set, as it stood at one time. It is never changed.
type projectView struct {
	store.Project
	policies map[string]store.Policy
	rules    map[string]store.Success
	profiles map[string]Profile
	// blind: what the project has set is not known.
	blind bool
}

func newCatalog(source Catalog) *catalog {
	c := &catalog{source: source}
	c.clear()
	return c
}

func (c *catalog) clear() {
	c.projects = make(map[string]*projectView)
	c.endpoints = make(map[string]*store.Endpoint)
	c.names = make(map[endpointName]string)
	c.subscribed = make(map[string][]*store.Endpoint)
}

// project returns what the project has set.
func (c *catalog) project(ctx context.Context, id string) (*projectView, error) {
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
	if v, err = viewOf(p, presets); err != nil {
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

func viewOf(p store.Project, presets []store.Preset) (*projectView, error) {
	v := &projectView{
		Project: p, policies: make(map[string]store.Policy), rules: make(map[string]store.Success), profiles: make(map[string]Profile),
	}
	for _, preset := range presets {
		var err error
		switch preset.Kind {
		case store.PresetPolicy:
			var policy store.Policy
			err = json.Unmarshal([]byte(preset.Value), &policy)
			policy.Name = preset.Name
			v.policies[preset.Name] = policy
		case store.PresetSuccess:
			v.rules[preset.Name] = store.Success{Name: preset.Name, Rule: preset.Value}
		case store.PresetProfile:
			var profile Profile
			err = json.Unmarshal([]byte(preset.Value), &profile)
			profile.Name = preset.Name
			v.profiles[preset.Name] = profile
		}
		if err != nil {
			return nil, fmt.Errorf("decode %s %s of project %s: %w", preset.Kind, preset.Name, p.ID, err)
		}
	}
	return v, nil
}

// named returns the endpoints of those names, as far as they exist and are not being deleted.
func (c *catalog) named(ctx context.Context, project string, names []string) (map[string]*store.Endpoint, error) {
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

// keep remembers an endpoint. The caller holds the lock.
func (c *catalog) keep(e *store.Endpoint) {
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

// endpoint returns an endpoint by its bare id; store.ErrNotFound where there is none, or none any more.
func (c *catalog) endpoint(ctx context.Context, id string) (*store.Endpoint, error) {
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
func (c *catalog) subscribers(ctx context.Context, project string) ([]*store.Endpoint, error) {
	c.mu.RLock()
	known, ok := c.subscribed[project]
	epoch := c.epoch
	c.mu.RUnlock()
	if ok {
		return known, nil
	}
	var subscribers []*store.Endpoint
	for after, more := "", true; more; {
		read, err := c.source.Subscribers(ctx, project, after, pageRows)
		if err != nil {
			return nil, fmt.Errorf("read the subscribers of project %s: %w", project, err)
		}
		for i := range read {
			subscribers = append(subscribers, &read[i])
			after = read[i].ID
		}
		more = len(read) == pageRows
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

// forgetEndpoints has endpoints that were changed read again; forgetProject, a project.
func (c *catalog) forgetEndpoints(changed []store.Endpoint) {
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

func (c *catalog) forgetProject(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	delete(c.projects, id)
}

// refresh forgets what was changed since the last time.
func (c *catalog) refresh(ctx context.Context) error {
	for more := true; more; {
		read, err := c.source.EndpointsChanged(ctx, c.seenEndpoints, pageRows)
		if err != nil {
			return fmt.Errorf("read changed endpoints: %w", err)
		}
		c.forgetEndpoints(read)
		if more = len(read) == pageRows; len(read) > 0 {
			c.seenEndpoints = read[len(read)-1].Version
		}
	}
	for more := true; more; {
		read, err := c.source.ProjectsChanged(ctx, c.seenProjects, pageRows)
		if err != nil {
			return fmt.Errorf("read changed projects: %w", err)
		}
		for i := range read {
			c.forgetProject(read[i].ID)
		}
		if more = len(read) == pageRows; len(read) > 0 {
			c.seenProjects = read[len(read)-1].Version
		}
	}
	return nil
}

// notFound says whether what was asked for does not exist, as against that it could not be asked for.
func notFound(err error) bool { return errors.Is(err, store.ErrNotFound) }
