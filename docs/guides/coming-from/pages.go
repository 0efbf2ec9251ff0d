// Package comingfrom is the documentation's pages for those who used another controller. kubectl node-ready prints them
// too.
package comingfrom

import "embed"

// Pages are the pages of this folder, NAME.md.
//
//go:embed *.md
var Pages embed.FS
