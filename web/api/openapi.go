package api

import (
	_ "embed" // The document is a part of the program.
	"net/http"

	"github.com/gin-gonic/gin"
)

//go:embed openapi.yaml
var openapiYAML []byte

// openapi is GET /openapi.yaml. It needs no key: it says nothing of this installation.
func (a *API) openapi(c *gin.Context) {
	c.Writer.Header().Set("Content-Type", "application/yaml; charset=utf-8")
	c.Writer.WriteHeader(http.StatusOK)
	_, err := c.Writer.Write(openapiYAML)
	a.wrote(c, err)
}
