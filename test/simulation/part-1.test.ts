import { simulationPart } from './part.ts';

simulationPart(1);
