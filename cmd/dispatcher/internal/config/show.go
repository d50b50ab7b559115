package config

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// ShowCommand shows the effective settings.
type ShowCommand struct {
	Flags
	JSON bool `name:"json" help:"Print JSON for machines."`
}

// A shownSetting is one line of what config shows.
type shownSetting struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	From    string `json:"from"`
}

// Run prints every setting with its value, secrets masked, and where it came from. Wrong settings end it like a start.
func (cmd *ShowCommand) Run(c *console.Console) error {
	l, err := Load(c, &cmd.Flags)
	if err != nil {
		return err
	}
	shown := l.shown()
	if cmd.JSON {
		return console.PrintValue(c, shown)
	}
	t := c.NewTable("setting", "value", "from")
	for _, s := range shown {
		t.Row(s.Setting, s.Value, s.From)
	}
	t.Render()
	return nil
}

// shown returns the settings for people, in the order of the catalogue.
func (l *loaded) shown() []shownSetting {
	values := reflect.ValueOf(l.Settings)
	var list []shownSetting
	for _, s := range catalogue() {
		list = append(list, shownSetting{
			Setting: s.key,
			Value:   showValue(s, values.Field(s.field)),
			From:    l.origins[s.key],
		})
	}
	return list
}

// showValue prints a value as it would be written in a flag.
func showValue(s setting, v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Duration:
		return schedule.FormatDuration(value)
	case int:
		return strconv.Itoa(value)
	case bool:
		return strconv.FormatBool(value)
	case []string:
		parts := make([]string, len(value))
		for i, part := range value {
			parts[i] = maskValue(s, part)
		}
		return strings.Join(parts, ",")
	}
	return maskValue(s, v.String())
}
