package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// uid is the final id of the dashboard: alerts and bookmarks have it.
const uid = "dispatcher"

// object is a JSON object.
type object map[string]any

// TestDashboard compares the dashboard with the rows of panels_test.go, or writes it with -update.
func TestDashboard(t *testing.T) {
	transcript.File(t, "grafana/dispatcher.json", func(t *testing.T, _ string) string {
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", " ")
		if err := encoder.Encode(dashboard()); err != nil {
			t.Fatal(err)
		}
		return b.String()
	})
}

func dashboard() object {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	variable := func(name, label, values string, more object) object {
		v := object{"name": name, "label": label, "type": "query", "datasource": source, "definition": values,
			"query": object{"query": values, "refId": name}, "refresh": 2, "sort": 1}
		for key, value := range more {
			v[key] = value
		}
		return v
	}
	return object{
		"uid": uid, "title": "Dispatcher", "tags": []string{"dispatcher"}, "schemaVersion": 39, "version": 1,
		"editable": true, "graphTooltip": 1, "refresh": "30s", "timezone": "browser",
		"time": object{"from": "now-6h", "to": "now"},
		"annotations": object{"list": []object{{"name": "Alerts", "enable": true, "iconColor": "red",
			"datasource": source, "titleFormat": "{{alertname}}",
			"expr": `ALERTS{alertname=~"Dispatcher.*",alertstate="firing",severity!="info",job="$job"}`}}},
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
			variable("job", "Installation", "label_values(dispatcher_build_info, job)", nil),
			variable("instance", "Process", `label_values(dispatcher_build_info{job="$job"}, instance)`,
				object{"multi": true, "includeAll": true, "allValue": ".*"}),
		}},
		"panels": placed(source),
	}
}

// placed returns the rows and their panels with their places in a grid of 24 columns.
func placed(source object) (all []object) {
	y := 0
	for _, r := range dashboardRows {
		all = append(all, object{"id": r.id, "type": "row", "title": r.title, "collapsed": false,
			"panels": []object{}, "gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}})
		y++
		x, height := 0, 0
		for _, p := range r.panels {
			w, h := 8, 8
			if p.stat {
				w, h = 4, 4
			}
			if x+w > 24 || h != height && height > 0 {
				x, y = 0, y+height
			}
			made := p.object(source)
			made["gridPos"] = object{"x": x, "y": y, "w": w, "h": h}
			all = append(all, made)
			x, height = x+w, h
		}
		y += height
	}
	return all
}

// selectors replaces the short matchers of panels.
var selectors = strings.NewReplacer("{J", `{job="$job"`, "{I", `{job="$job",instance=~"$instance"`)

func (p panel) object(source object) object {
	var targets []object
	for i, q := range p.queries {
		targets = append(targets, object{"refId": string(rune('A' + i)), "datasource": source,
			"expr": selectors.Replace(q.expr), "legendFormat": q.legend})
	}
	steps := []object{{"color": "green", "value": nil}}
	for _, l := range p.limits {
		steps = append(steps, object{"color": l.color, "value": l.at})
	}
	defaults := object{"unit": p.unit, "thresholds": object{"mode": "absolute", "steps": steps}}
	made := object{"id": p.id, "title": p.title, "description": p.normal, "datasource": source,
		"targets": targets, "fieldConfig": object{"defaults": defaults, "overrides": []object{}}}
	if p.stat {
		made["type"] = "stat"
		made["options"] = object{"colorMode": "value", "graphMode": "area", "textMode": "auto",
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}}
		return made
	}
	style := "off"
	if len(p.limits) > 0 {
		style = "line"
	}
	made["type"] = "timeseries"
	defaults["custom"] = object{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never",
		"thresholdsStyle": object{"mode": style}}
	made["options"] = object{"tooltip": object{"mode": "multi", "sort": "desc"},
		"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true}}
	return made
}

// viewed matches the panel that an alert links to.
var viewed = regexp.MustCompile(`^/d/` + uid + `\?viewPanel=(\d+)(&var-job=\{\{ \$labels\.job \}\})?$`)

func TestPanelsSayWhatIsNormal(t *testing.T) {
	ids, titles := map[int]bool{}, map[string]bool{}
	for _, r := range dashboardRows {
		for _, p := range append([]panel{{id: r.id, title: r.title, normal: ".", unit: "none",
			queries: []query{{}}}}, r.panels...) {
			if ids[p.id] || titles[p.title] {
				t.Errorf("panel %d, %s: the id or the title is not unique", p.id, p.title)
			}
			ids[p.id], titles[p.title] = true, true
			if p.unit == "" || !strings.HasSuffix(p.normal, ".") || len(p.queries) == 0 {
				t.Errorf("panel %d, %s: want a unit, a description of what is normal, and a query", p.id,
					p.title)
			}
			if !slices.IsSortedFunc(p.limits, func(a, b limit) int { return int(1e6 * (a.at - b.at)) }) {
				t.Errorf("panel %d, %s: the limits are not in order", p.id, p.title)
			}
		}
	}
	for _, a := range alerts(t) {
		found := viewed.FindStringSubmatch(a.Annotations["dashboard"])
		if found == nil {
			t.Errorf("%s: the dashboard is %q", a.Alert, a.Annotations["dashboard"])
			continue
		}
		if id, err := strconv.Atoi(found[1]); err != nil || id < 10 || !ids[id] {
			t.Errorf("%s links to panel %s, which does not exist", a.Alert, found[1])
		}
	}
}

// variables replaces the variables of Grafana by values, for the check of an expression.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h")

// expressions returns the expressions of the dashboard with values for their variables.
func expressions() (all []string) {
	for _, r := range dashboardRows {
		for _, p := range r.panels {
			for _, q := range p.queries {
				all = append(all, variables.Replace(selectors.Replace(q.expr)))
			}
		}
	}
	return all
}

// TestDashboardExpressions lets promtool check the expressions of the dashboard, as rules.
func TestDashboardExpressions(t *testing.T) {
	if testing.Short() {
		t.Skip("promtool is not needed with -short")
	}
	var b strings.Builder
	b.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for i, expr := range expressions() {
		fmt.Fprintf(&b, "      - record: dashboard:expression:%d\n        expr: |\n          %s\n", i, expr)
	}
	name := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "promtool", "check", "rules", name)
}
